"""Starts Spark sessions, runs tasks in parallel, reports their progress, and explains failures."""

from __future__ import annotations

import importlib.util
import marshal
import os
import re
import shlex
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import TypeVar

from pyspark import SparkConf, SparkContext, cloudpickle
from pyspark.sql import SparkSession

from lake.errors import ExportError
from lake.running import settings
from lake.running.cores import ExecutorWait, await_executor, is_local, most_cores
from lake.running.failures import plain_errors
from lake.running.task import GuardedTask

__all__ = ["plain_errors", "require_answer", "run_tasks", "session", "zip_modules"]

Task = TypeVar("Task")
Result = TypeVar("Result")
_POLL = 0.5
_JVM_OPTIONS = "SPARK_SUBMIT_OPTS"
_CLIENT = "org.apache.spark.deploy.client.StandaloneAppClient$ClientEndpoint"
_PREFIX = "pipeline-spark-"
_UNCHECKED = (1).to_bytes(4, "little")
"""In the header of byte code (PEP 552): it is used whatever the time of its source, which a zip has in local time."""


def require_answer(master: str | None) -> None:
    """Raise ExportError at once, not after a minute, if a standalone master does not listen or YARN has no settings."""
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
    report_wait: Callable[[str], None] = lambda _: None,
) -> Iterator[SparkSession]:
    """Start a session whose executors have our modules. `master` None: that of spark-submit. Raises ExportError.

    `password`: of the pipeline database; executors get it if Spark encrypts its messages. `report_wait` gets a
    message while Spark has no executor.
    """
    require_answer(master)
    local = (master or "").startswith("local")
    if local:  # tasks run on this Python, whatever PATH says
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with _folder() as folder:
        with plain_errors():
            spark = _create_session(master, name, folder, {**(settings.LOOPBACK if local else {})}, password)
        try:
            spark.sparkContext.addPyFile(zip_modules(folder))
            if not local:
                await_executor(spark, report_wait)
            yield spark
        finally:
            spark.stop()


def _create_session(
    master: str | None, name: str, folder: Path, defaults: Mapping[str, str], password: str | None
) -> SparkSession:
    given = settings.read_settings()
    if master:
        given["spark.master"] = master
    if python := given.get("spark.pyspark.python"):  # PySpark reads this from the environment only
        os.environ["PYSPARK_PYTHON"] = python
    with _jvm_writes_to(folder):
        SparkContext._ensure_initialized(conf=_arguments(given))
    _log_executor_changes()
    known = dict(SparkConf().getAll())  # includes the settings of spark-submit and spark-defaults.conf
    preferred = {"spark.app.name": name, **settings.DEFAULTS, **settings.umask_setting(), **defaults}
    wanted = {setting: value for setting, value in preferred.items() if setting not in known} | given
    if password and settings.encrypts({**known, **given}):
        wanted["spark.executorEnv.PGPASSWORD"] = password  # Spark redacts the value, because of the setting's name
    if settings.encrypts({**known, **given}):
        wanted = {**settings.store_credentials(), **wanted}
    builder = SparkSession.builder
    for setting, value in {**wanted, **settings.ORDERS}.items():
        builder = builder.config(setting, value)
    return builder.getOrCreate()


def _arguments(given: Mapping[str, str]) -> SparkConf:
    """Return the settings with which the JVM is started, without secrets: all users of the host can see them."""
    conf = SparkConf(loadDefaults=False)
    for setting, value in given.items():
        if not settings.SECRET.search(setting):
            conf.set(setting, value)
    return conf


@contextmanager
def _jvm_writes_to(folder: Path) -> Iterator[None]:
    """Let a JVM that is started in the block put its temporary files into `folder`."""
    before = os.environ.get(_JVM_OPTIONS)
    os.environ[_JVM_OPTIONS] = f"{before or ''} -Djava.io.tmpdir={shlex.quote(str(folder))}".strip()
    try:
        yield
    finally:
        if before is None:
            del os.environ[_JVM_OPTIONS]
        else:
            os.environ[_JVM_OPTIONS] = before


def _log_executor_changes() -> None:
    """Let Spark log the ends of executors at any log level, because `ExecutorWait` reads them."""
    log4j = SparkContext._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    log4j.core.config.Configurator.setLevel(_CLIENT, log4j.Level.INFO)


def run_tasks(
    spark: SparkSession,
    act: Callable[[Task], Result],
    tasks: Sequence[Task],
    done: Callable[[int], None],
    *,
    description: str = "export",
    at_once: int | None = None,
) -> list[Result]:
    """Run `act` for each task, and return the results. Tasks run in parallel; those of a lost executor run again.

    `done` is called every half second with the number of tasks that have ended. `description` appears in Spark's UI.
    `at_once`: the most tasks that run at a time, however many cores the cluster has; smaller tasks should come last.
    Raises ExportError with the reason of a failed task, or if there has been no executor for too long.
    """
    groups = len(tasks)
    if at_once is not None and at_once < min(groups, most_cores(spark)):
        groups = at_once
    context = spark.sparkContext
    group = f"pipeline-{id(tasks)}"
    with _watched(spark, group, lambda ended: done(ended * len(tasks) // max(1, groups))):
        context.setJobGroup(group, description)
        guarded = GuardedTask(_pickled(act), named=not is_local(spark))
        packed = [[_pickled(task) for task in tasks[number::groups]] for number in range(groups)]
        with plain_errors():
            made = context.parallelize(packed, groups).map(guarded).collect()
        return [made[number % groups][number // groups] for number in range(len(tasks))]


@contextmanager
def _watched(spark: SparkSession, group: str, done: Callable[[int], None]) -> Iterator[None]:
    """Report the ended tasks of a job group to `done` while the block runs it; cancel it if it gets no executor."""
    ended = threading.Event()
    executor_wait = ExecutorWait(spark)

    def watch() -> None:
        while not ended.wait(_POLL):
            done(_ended_tasks(spark, group))
            if executor_wait.has_lasted_too_long():
                spark.sparkContext.cancelJobGroup(group)
                return

    watcher = threading.Thread(target=watch, name="progress", daemon=True)
    watcher.start()
    try:
        yield
    except ExportError:
        if executor_wait.reason:
            raise ExportError(executor_wait.reason) from None
        raise
    finally:
        ended.set()
        watcher.join()


def _pickled(value: object) -> bytes:
    return bytes(cloudpickle.dumps(value))  # type: ignore[no-untyped-call]


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
    """Make a temporary folder for the run, after the folders of runs that were killed are removed."""
    for old in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        pid = old.name.removeprefix(_PREFIX).partition("-")[0]
        if pid.isdecimal() and not Path(f"/proc/{pid}").exists() and Path("/proc/self").exists():
            with suppress(OSError):
                if old.stat().st_uid == os.getuid():
                    shutil.rmtree(old, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{os.getpid()}-", ignore_cleanup_errors=True) as made:
        yield Path(made)


def zip_modules(folder: Path) -> str:
    """Make a zip in `folder` of the modules that tasks import, compiled, to send to executors."""
    root = Path(__file__).parents[2]
    for package in ("lake", "pyspark_sequin_events"):
        source = root / package
        if not source.is_dir():  # in an installed wheel, the data source is a separate package
            import pyspark_sequin_events

            source = Path(pyspark_sequin_events.__file__).parent
        _copy_compiled(source, folder / "modules" / package)
    return shutil.make_archive(str(folder / "pipeline_lake"), "zip", folder / "modules")


def _copy_compiled(source: Path, target: Path) -> None:
    """Copy a package, with the byte code beside each module: Python stores none for what it imports from a zip.

    A Python of another version does not use it, and compiles the module itself.
    """
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    for module in target.rglob("*.py"):
        loader = SourceFileLoader(module.stem, str(source / module.relative_to(target)))
        header = importlib.util.MAGIC_NUMBER + _UNCHECKED + importlib.util.source_hash(module.read_bytes())
        module.with_suffix(".pyc").write_bytes(header + marshal.dumps(loader.get_code(module.stem)))
