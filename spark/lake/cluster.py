"""What an export needs of Spark: a session, tasks that run in parallel, their progress, and why they failed."""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lake.errors import ExportError

Task = TypeVar("Task")
Result = TypeVar("Result")
_POLL = 0.5
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "spark.log.level": "ERROR",
}


def require_answer(master: str | None) -> None:
    """Raises ExportError at once, not after a minute, if a standalone master does not listen."""
    if master is None or not master.startswith("spark://"):
        return
    reason = "it names no host and port"
    for host, port in re.findall(r"([^,/:]+|\[[^]]+\]):(\d+)", master.removeprefix("spark://")):
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=10):
                return
        except OSError as error:
            reason = error.strerror or str(error)
    raise ExportError(
        f"the Spark master {master} does not answer: {reason}; start it, or correct PIPELINE_SPARK_MASTER"
    )


@contextmanager
def session(master: str | None, name: str) -> Iterator[SparkSession]:
    """A session whose executors have our modules. `master` None: the one given to spark-submit. Raises ExportError."""
    require_answer(master)
    if (master or "").startswith("local"):  # tasks run on this Python, whatever PATH says
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    if master:
        builder = builder.master(master)
    for setting, value in _SETTINGS.items():
        builder = builder.config(setting, value)
    with plain_errors():
        spark = builder.getOrCreate()
    try:
        with tempfile.TemporaryDirectory(prefix="pipeline-spark-") as folder:
            spark.sparkContext.addPyFile(our_modules(Path(folder)))
            yield spark
    finally:
        spark.stop()


def each(
    spark: SparkSession, act: Callable[[Task], Result], tasks: Sequence[Task], done: Callable[[int], None]
) -> list[Result]:
    """The results of `act` for each task. Tasks run in parallel; those of a lost executor run again.

    `done` is called now and then with the number of tasks that have ended. Raises ExportError with the reason of a
    task that failed.
    """
    context = spark.sparkContext
    ended = threading.Event()
    group = f"pipeline-{id(tasks)}"

    def watch() -> None:
        while not ended.wait(_POLL):
            done(_ended_tasks(spark, group))

    watcher = threading.Thread(target=watch, name="progress", daemon=True)
    watcher.start()
    try:
        context.setJobGroup(group, "export")
        with plain_errors():
            return context.parallelize(tasks, len(tasks)).map(act).collect()
    finally:
        ended.set()
        watcher.join()


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn what Spark raises into an ExportError: one line with the cause."""
    try:
        yield
    except (Py4JError, PySparkException, OSError) as error:
        raise ExportError(f"Spark failed: {reason(error)}") from error


def reason(error: BaseException) -> str:
    """The innermost cause in nested stack traces, in one line."""
    causes = re.findall(r"(?m)^(?:Caused by: )?[\w.]*?(\w+(?:Error|Exception)): (.+)$", str(error))
    ours = [f"{name}: {text}" for name, text in causes if not text.startswith(("Job aborted", "Traceback", "An exc"))]
    text = ours[-1] if ours else next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return text.strip()


def _ended_tasks(spark: SparkSession, group: str) -> int:
    tracker = spark.sparkContext.statusTracker()
    found = 0
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info else []:
            stage_info = tracker.getStageInfo(stage)
            found += stage_info.numCompletedTasks if stage_info else 0
    return found


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
