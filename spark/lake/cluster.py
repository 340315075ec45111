"""What an export needs of Spark: a session, tasks that run in parallel, their progress, and why they failed."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from pyspark import SparkConf, SparkContext, cloudpickle
from pyspark.sql import SparkSession

from lake import settings
from lake.errors import ExportError
from lake.failures import plain_errors, told, told_so_far
from lake.task import Guarded

__all__ = ["each", "our_modules", "plain_errors", "require_answer", "session"]

Task = TypeVar("Task")
Result = TypeVar("Result")
_POLL = 0.5
_WAITS_SECONDS = 10.0
"""So long without an executor is worth telling."""
_JVM_OPTIONS = "SPARK_SUBMIT_OPTS"
_CLIENT = "org.apache.spark.deploy.client.StandaloneAppClient$ClientEndpoint"
_ENDED = re.compile(r"Executor updated: \S+ is now (?:EXITED|FAILED)(?: \((.+)\))?")
_MOST_ENDED = 6
"""So many executors that end before one has begun to work will not get better."""
_PREFIX = "pipeline-spark-"


def require_answer(master: str | None) -> None:
    """Raises ExportError at once, not after a minute, if a standalone master does not listen, or YARN is not known."""
    if master == "yarn" and not (os.environ.get("HADOOP_CONF_DIR") or os.environ.get("YARN_CONF_DIR")):
        raise ExportError(
            "the Spark master is yarn, but neither HADOOP_CONF_DIR nor YARN_CONF_DIR is set; set one to the folder of "
            "yarn-site.xml, or correct PIPELINE_SPARK_MASTER"
        )
    if master is None or not master.startswith("spark://"):
        return
    reason = "it names no host and port"
    for host, port in re.findall(r"([^,/:]+|\[[^]]+\]):(\d+)", master.removeprefix("spark://")):
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=10):
                return
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
    raise ExportError(
        f"the Spark master {master} does not answer: {reason}; start it, or correct PIPELINE_SPARK_MASTER"
    )


@contextmanager
def session(
    master: str | None,
    name: str,
    *,
    password: str | None = None,
    waits: Callable[[str], None] = lambda _: None,
) -> Iterator[SparkSession]:
    """A session whose executors have our modules. `master` None: the one given to spark-submit. Raises ExportError.

    `password`: of the pipeline database, which executors get where Spark encrypts what it sends. `waits` is told while
    no executor is there.
    """
    require_answer(master)
    local = (master or "").startswith("local")
    if local:  # tasks run on this Python, whatever PATH says
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with _folder() as folder:
        with plain_errors():
            spark = _made(master, name, folder, {**(settings.LOOPBACK if local else {})}, password)
        try:
            spark.sparkContext.addPyFile(our_modules(folder))
            if not local:
                _await_executor(spark, waits)
            yield spark
        finally:
            spark.stop()


def _made(
    master: str | None, name: str, folder: Path, defaults: Mapping[str, str], password: str | None
) -> SparkSession:
    given = settings.given()
    if master:
        given["spark.master"] = master
    if python := given.get("spark.pyspark.python"):  # which PySpark looks for in the environment alone
        os.environ["PYSPARK_PYTHON"] = python
    with _writing_to(folder):
        SparkContext._ensure_initialized(conf=_arguments(given))
    _tell_of_executors()
    known = dict(SparkConf().getAll())  # with what spark-submit and spark-defaults.conf say
    preferred = {"spark.app.name": name, **settings.DEFAULTS, **defaults}
    wanted = {setting: value for setting, value in preferred.items() if setting not in known} | given
    if password and settings.encrypts({**known, **given}):
        wanted["spark.executorEnv.PGPASSWORD"] = password  # Spark redacts it by its name
    builder = SparkSession.builder
    for setting, value in {**wanted, **settings.ORDERS}.items():
        builder = builder.config(setting, value)
    return builder.getOrCreate()


def _arguments(given: Mapping[str, str]) -> SparkConf:
    """Those that the JVM is started with, for everybody to see."""
    conf = SparkConf(loadDefaults=False)
    for setting, value in given.items():
        if not settings.SECRET.search(setting):
            conf.set(setting, value)
    return conf


@contextmanager
def _writing_to(folder: Path) -> Iterator[None]:
    """A JVM that is started meanwhile has all that it writes for a while there."""
    before = os.environ.get(_JVM_OPTIONS)
    os.environ[_JVM_OPTIONS] = f"{before or ''} -Djava.io.tmpdir={shlex.quote(str(folder))}".strip()
    try:
        yield
    finally:
        if before is None:
            del os.environ[_JVM_OPTIONS]
        else:
            os.environ[_JVM_OPTIONS] = before


def _tell_of_executors() -> None:
    """Let Spark log what becomes of executors, whatever else it may: `_Starved` looks for it."""
    log4j = SparkContext._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    log4j.core.config.Configurator.setLevel(_CLIENT, log4j.Level.INFO)


def each(
    spark: SparkSession,
    act: Callable[[Task], Result],
    tasks: Sequence[Task],
    done: Callable[[int], None],
    *,
    description: str = "export",
) -> list[Result]:
    """The results of `act` for each task. Tasks run in parallel; those of a lost executor run again.

    `done` is called now and then with the number of tasks that have ended. `description` is what Spark's UI shows.
    Raises ExportError with the reason of a task that failed, and where there has been no executor for too long.
    """
    context = spark.sparkContext
    ended = threading.Event()
    group = f"pipeline-{id(tasks)}"
    starved = _Starved(spark)

    def watch() -> None:
        while not ended.wait(_POLL):
            done(_ended_tasks(spark, group))
            if starved.for_too_long():
                context.cancelJobGroup(group)
                return

    watcher = threading.Thread(target=watch, name="progress", daemon=True)
    watcher.start()
    try:
        context.setJobGroup(group, description)
        guarded = Guarded(_packed(act), named=not _is_local(spark))
        packed = [_packed(task) for task in tasks]
        with plain_errors():
            return context.parallelize(packed, len(packed)).map(guarded).collect()
    except ExportError:
        if starved.reason:
            raise ExportError(starved.reason) from None
        raise
    finally:
        ended.set()
        watcher.join()


class _Starved:
    """Whether a cluster has given no executor for longer than it may; `reason`: that it has not."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._local = _is_local(spark)
        self.limit = float(spark.sparkContext.getConf().get(settings.WAIT, str(settings.WAIT_SECONDS)).rstrip("s"))
        self._since: float | None = None
        self._told = told_so_far()
        self.reason: str | None = None

    def seconds(self) -> float:
        """How long there has been none."""
        if self._local or _executors(self._spark) > 0:
            self._since = None
            return 0.0
        self._since = self._since or time.monotonic()
        return time.monotonic() - self._since

    def for_too_long(self) -> bool:
        """Looks now."""
        seconds = self.seconds()
        if seconds <= 0.0:
            return False
        ended = _ENDED.findall(told(self._told))
        if len(ended) >= _MOST_ENDED or (ended and seconds > self.limit):
            self.reason = (
                f"executors end as soon as they start: {ended[-1] or 'no reason given'}; see their standard error, in "
                "the work folder of each worker"
            )
            return True
        if seconds <= self.limit:
            return False
        self.reason = f"{self.waiting()} for {self.limit:g} s; {_REMEDY}"
        return True

    def waiting(self) -> str:
        """What is waited for, for whoever looks on."""
        return f"the export waits for cores: the Spark master {self._spark.sparkContext.master} has given it none"


_REMEDY = (
    "end what holds them, ask for less by spark.cores.max and spark.executor.memory in [spark], see the executors' "
    f"standard error on the workers, or wait for longer by {settings.WAIT}"
)


def _await_executor(spark: SparkSession, waits: Callable[[str], None]) -> None:
    """Until the cluster has given one. Raises ExportError."""
    starved = _Starved(spark)
    told = False
    while starved.seconds() > 0.0:
        with plain_errors():
            if spark.sparkContext._jsc.sc().isStopped():
                raise OSError
        if starved.for_too_long():
            raise ExportError(str(starved.reason))
        if not told and starved.seconds() > min(_WAITS_SECONDS, starved.limit):
            waits(starved.waiting())
            told = True
        time.sleep(_POLL)


def _packed(value: object) -> bytes:
    return bytes(cloudpickle.dumps(value))  # type: ignore[no-untyped-call]


def _is_local(spark: SparkSession) -> bool:
    return (spark.sparkContext.master or "").startswith("local")


def _executors(spark: SparkSession) -> int:
    """How many there are, the driver not counted."""
    return int(spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1


def _ended_tasks(spark: SparkSession, group: str) -> int:
    tracker = spark.sparkContext.statusTracker()
    found = 0
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info else []:
            stage_info = tracker.getStageInfo(stage)
            found += stage_info.numCompletedTasks if stage_info else 0
    return found


@contextmanager
def _folder() -> Iterator[Path]:
    """A temporary folder for all that the run writes there; those of runs that were killed go first."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        pid = left.name.removeprefix(_PREFIX).partition("-")[0]
        if pid.isdecimal() and not Path(f"/proc/{pid}").exists() and Path("/proc/self").exists():
            with suppress(OSError):
                if left.stat().st_uid == os.getuid():
                    shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{os.getpid()}-", ignore_cleanup_errors=True) as made:
        yield Path(made)


def our_modules(folder: Path) -> str:
    """Make a zip in `folder` of the modules that tasks import; it is sent to executors."""
    root = Path(__file__).parents[1]
    for package in ("lake", "pyspark_sequin_events"):
        source = root / package
        if not source.is_dir():  # in an installed wheel the data source is a module of its own
            import pyspark_sequin_events

            source = Path(pyspark_sequin_events.__file__).parent
        shutil.copytree(source, folder / "modules" / package, ignore=shutil.ignore_patterns("__pycache__"))
    return shutil.make_archive(str(folder / "pipeline_lake"), "zip", folder / "modules")
