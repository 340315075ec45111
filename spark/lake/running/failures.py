"""Explains in one line why Spark failed: the innermost cause, the host, and what to do."""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from lake.errors import ExportError
from lake.running.task import TASK

_CAUSE = re.compile(r"(?m)^(?:Caused by: |: )?[\w.$]*?(\w+(?:Error|Exception))(?:: (.+))?$")
_LOST = re.compile(r"\(TID \d+\) \((\S+) executor (\w+)\)")
_JAVA_EXITED = "JAVA_GATEWAY_EXITED"
_JAVA_NOTES = ("Picked up ", "NOTE: ", "WARNING: ")
_OUTER = ("Job aborted", "Traceback", "An exc", "An error occurred while calling")
_LOGGED_ERROR = re.compile(r"(?m)^(?:\S+ )*ERROR (?:\w+): (.+)$")
_EMPTY_CAUSE = re.compile(
    r"^(IllegalStateException|NullPointerException|Py4J\w+|SparkException)?:? ?(Cannot call methods on a stopped|$)"
)
_REMEDIES = (
    ("Java ended before", "correct JAVA_HOME, the options that you set for Java, or spark.driver.memory"),
    ("Cannot run program", "install that interpreter on every host, or name one that is there: PYSPARK_PYTHON"),
    (
        "No module named",
        "install pyarrow and adbc-driver-postgresql for that interpreter, or name another: PYSPARK_PYTHON",
    ),
    ("PYTHON_VERSION_MISMATCH", "give executors the driver's minor version of Python: PYSPARK_PYTHON"),
    ("no password supplied", "give executors the password by PGPASSFILE or a service file, or encrypt Spark's RPC"),
    ("Master removed our application", "see the executors' standard error, in the work folder of each worker"),
    (
        "All masters are unresponsive",
        "give the driver the version of PySpark that the cluster has, see docs/how-to/spark-cluster.md",
    ),
)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn errors of Spark into an ExportError: one line with the cause. The trace goes to standard error."""
    before = logged_length()
    try:
        yield
    except (Py4JError, PySparkException, OSError) as error:
        traceback.print_exception(error)
        raise ExportError(f"Spark failed: {find_reason(error, logged_since(before))}") from error


def find_reason(error: BaseException, log: str = "") -> str:
    """Return the innermost cause in nested stack traces, in one line; if they have none, what Spark has logged."""
    text = str(error)
    found = _task_error(text) or _innermost(text)
    logged = _LOGGED_ERROR.findall(log)
    if logged and (not found or _EMPTY_CAUSE.match(found)):
        found = next((line for line in reversed(logged) if "Error initializing SparkContext" not in line), logged[-1])
    if not found:
        found = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    if _JAVA_EXITED in found:
        said = [line.strip() for line in log.splitlines() if line.strip() and not line.startswith(_JAVA_NOTES)]
        found = f"Java ended before it ran Spark: {', '.join(said[:2]) or 'it printed nothing'}"
    remedy = next((remedy for words, remedy in _REMEDIES if words in found), None)
    return found.strip() + (f"; {remedy}" if remedy else "")


def _task_error(text: str) -> str | None:
    """Return the error of our code in a task, with host and interpreter."""
    found = re.findall(rf"(?m)\b{TASK}: (.+)$", text)
    return str(found[-1]) if found else None


def _innermost(text: str) -> str:
    causes = [(name, detail or "") for name, detail in _CAUSE.findall(text) if not (detail or "").startswith(_OUTER)]
    telling = [f"{name}: {detail}" for name, detail in causes if detail] or [name for name, _ in causes]
    known = [cause for cause in telling if any(words in cause for words, _ in _REMEDIES)]
    found = (known or telling or [""])[-1]
    hosts = {host for host, executor in _LOST.findall(text) if executor != "driver"}
    return f"on {', '.join(sorted(hosts))}: {found}" if hosts and found else found


def logged_length() -> int:
    """Return the present length of standard error, for `logged_since`."""
    with suppress(OSError):
        return os.fstat(sys.__stderr__.fileno()).st_size if sys.__stderr__ else 0
    return 0


def logged_since(since: int) -> str:
    """Return what was written to standard error since then, if that is a file, as when the server starts a script."""
    with suppress(OSError, ValueError), Path("/proc/self/fd/2").open("rb") as log:
        if Path("/proc/self/fd/2").is_file():
            log.seek(since)
            return log.read().decode(errors="replace")
    return ""
