"""Check for what only exports need: packages of the extras `spark` and `iceberg`, not imported, and a user's name."""

from __future__ import annotations

import os
import pwd
from collections.abc import Collection, Iterator
from importlib.util import find_spec

from pipeline.config.values import ICEBERG
from pipeline.errors import ExportFailedError

PACKAGES = ("pyspark", "pyarrow", "adbc_driver_postgresql")
REMEDY = "in a checkout: pip install '.[spark]'"
USER_REMEDY = "add this user there, or start the server as another user"
ICEBERG_PACKAGES = ("pyiceberg",)
ICEBERG_REMEDY = "in a checkout: pip install '.[iceberg]', or leave iceberg out of PIPELINE_EXPORT_FORMATS"


def missing() -> list[str]:
    """Return the names of the packages that are not installed; empty if exports can run."""
    return [name for name in PACKAGES if find_spec(name) is None]


def problems(formats: Collection[str]) -> Iterator[tuple[str, str, str]]:
    """Yield why exports in these formats would fail: the name of the finding, the reason, the remedy."""
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        yield "export user", f"user {os.geteuid()} has no entry in /etc/passwd, and Spark needs one", USER_REMEDY
    found = [name for name in ICEBERG_PACKAGES if find_spec(name) is None] if ICEBERG in formats else []
    if found:
        yield "iceberg", f"the iceberg extra is not installed ({', '.join(found)} missing)", ICEBERG_REMEDY


def require(formats: Collection[str] = ()) -> None:
    """Raise ExportFailedError if exports in these formats would fail, because a package or the user is missing."""
    if found := missing():
        raise ExportFailedError(f"the spark extra is not installed ({', '.join(found)} missing); {REMEDY}")
    for _, reason, remedy in problems(formats):
        raise ExportFailedError(f"{reason}; {remedy}")
