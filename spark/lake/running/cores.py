"""The cores that a cluster gives: how many, and whether it has given none for too long."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from pyspark.sql import SparkSession

from lake.errors import ExportError
from lake.running import settings
from lake.running.failures import logged_length, logged_since, plain_errors

_POLL = 0.5
_WAITS_SECONDS = 10.0
"""So long without an executor is worth telling."""
_ENDED = re.compile(r"Executor updated: \S+ is now (?:EXITED|FAILED)(?: \((.+)\))?")
_MOST_ENDED = 6
"""So many executors that end before one has begun to work will not get better."""
_UNKNOWN = 1 << 31


def is_local(spark: SparkSession) -> bool:
    return (spark.sparkContext.master or "").startswith("local")


def _executors(spark: SparkSession) -> int:
    """How many there are, the driver not counted."""
    return int(spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1


def cores(spark: SparkSession) -> int:
    """How many tasks run at a time: as many as the cluster has given cores, or will give."""
    most = most_cores(spark)
    return max(spark.sparkContext.defaultParallelism, most if most < _UNKNOWN else 1)


def most_cores(spark: SparkSession) -> int:
    """As many cores it can become at most."""
    context = spark.sparkContext
    if is_local(spark):
        return context.defaultParallelism
    most = context.getConf().get("spark.cores.max") if (context.master or "").startswith("spark://") else None
    return int(most) if most else _UNKNOWN


class ExecutorWait:
    """Whether a cluster has given no executor for longer than it may; `reason`: that it has not."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._local = is_local(spark)
        self.limit = float(spark.sparkContext.getConf().get(settings.WAIT, str(settings.WAIT_SECONDS)).rstrip("s"))
        self._since: float | None = None
        self._told = logged_length()
        self.reason: str | None = None

    def seconds(self) -> float:
        """How long there has been none."""
        if self._local or _executors(self._spark) > 0:
            self._since = None
            return 0.0
        self._since = self._since or time.monotonic()
        return time.monotonic() - self._since

    def has_lasted_too_long(self) -> bool:
        """Looks now."""
        seconds = self.seconds()
        if seconds <= 0.0:
            return False
        ended = _ENDED.findall(logged_since(self._told))
        if len(ended) >= _MOST_ENDED or (ended and seconds > self.limit):
            self.reason = (
                f"executors end as soon as they start: {ended[-1] or 'no reason given'}; see their standard error, in "
                "the work folder of each worker"
            )
            return True
        if seconds <= self.limit:
            return False
        self.reason = f"{self.message()} for {self.limit:g} s; {_REMEDY}"
        return True

    def message(self) -> str:
        """What is waited for, for whoever looks on."""
        return f"the export waits for cores: the Spark master {self._spark.sparkContext.master} has given it none"


_REMEDY = (
    "end what holds them, ask for less by spark.cores.max and spark.executor.memory in [spark], see the executors' "
    f"standard error on the workers, or wait for longer by {settings.WAIT}"
)


def await_executor(spark: SparkSession, waits: Callable[[str], None]) -> None:
    """Until the cluster has given one. Raises ExportError."""
    executor_wait = ExecutorWait(spark)
    told = False
    while executor_wait.seconds() > 0.0:
        with plain_errors():
            if spark.sparkContext._jsc.sc().isStopped():
                raise OSError
        if executor_wait.has_lasted_too_long():
            raise ExportError(str(executor_wait.reason))
        if not told and executor_wait.seconds() > min(_WAITS_SECONDS, executor_wait.limit):
            waits(executor_wait.message())
            told = True
        time.sleep(_POLL)
