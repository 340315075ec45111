"""Counts the cores that a cluster grants, and detects if it grants none for too long."""

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
"""Seconds without an executor after which the user is told."""
_ENDED = re.compile(r"Executor updated: \S+ is now (?:EXITED|FAILED)(?: \((.+)\))?")
_MOST_ENDED = 6
"""If this many executors end before one begins to work, the wait is given up."""
_UNKNOWN = 1 << 31


def is_local(spark: SparkSession) -> bool:
    return (spark.sparkContext.master or "").startswith("local")


def _executors(spark: SparkSession) -> int:
    """Return the number of executors, without the driver."""
    return int(spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1


def cores(spark: SparkSession) -> int:
    """Return the number of tasks that run at a time: the cores that the cluster has given, or will give."""
    most = most_cores(spark)
    return max(spark.sparkContext.defaultParallelism, most if most < _UNKNOWN else 1)


def most_cores(spark: SparkSession) -> int:
    """Return the most cores that the cluster may give; _UNKNOWN if no setting limits them."""
    context = spark.sparkContext
    if is_local(spark):
        return context.defaultParallelism
    most = context.getConf().get("spark.cores.max") if (context.master or "").startswith("spark://") else None
    return int(most) if most else _UNKNOWN


class ExecutorWait:
    """The wait for a cluster's first executor. `reason`: the text of the error, once the wait has lasted too long."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._local = is_local(spark)
        self.limit = float(spark.sparkContext.getConf().get(settings.WAIT, str(settings.WAIT_SECONDS)).rstrip("s"))
        self._since: float | None = None
        self._log_start = logged_length()
        self.reason: str | None = None

    def seconds(self) -> float:
        """Return the seconds for which there has been no executor."""
        if self._local or _executors(self._spark) > 0:
            self._since = None
            return 0.0
        self._since = self._since or time.monotonic()
        return time.monotonic() - self._since

    def has_lasted_too_long(self) -> bool:
        """Check now, set `reason`, and return True if the wait has lasted too long."""
        seconds = self.seconds()
        if seconds <= 0.0:
            return False
        ended = _ENDED.findall(logged_since(self._log_start))
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
        """Return the message about what the export waits for."""
        return f"the export waits for cores: the Spark master {self._spark.sparkContext.master} has given it none"


_REMEDY = (
    "end the programs that hold them, request less (spark.cores.max, spark.executor.memory in [spark]), read the "
    f"executors' standard error on the workers, or raise {settings.WAIT}"
)


def await_executor(spark: SparkSession, report_wait: Callable[[str], None]) -> None:
    """Wait until the cluster has given an executor. Raises ExportError if that takes too long."""
    executor_wait = ExecutorWait(spark)
    was_reported = False
    while executor_wait.seconds() > 0.0:
        with plain_errors():
            if spark.sparkContext._jsc.sc().isStopped():
                raise OSError
        if executor_wait.has_lasted_too_long():
            raise ExportError(str(executor_wait.reason))
        if not was_reported and executor_wait.seconds() > min(_WAITS_SECONDS, executor_wait.limit):
            report_wait(executor_wait.message())
            was_reported = True
        time.sleep(_POLL)
