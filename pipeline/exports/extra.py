"""The `spark` extra: the packages that only exports need. Searched for, never imported here."""

from __future__ import annotations

from importlib.util import find_spec

from pipeline.errors import ExportFailed

PACKAGES = ("pyspark", "pyarrow", "adbc_driver_postgresql")
REMEDY = "in a checkout: pip install '.[spark]'"


def missing() -> list[str]:
    """Names of the packages that are not installed; empty when exports can run."""
    return [name for name in PACKAGES if find_spec(name) is None]


def require() -> None:
    """Raises ExportFailed when something is missing."""
    if found := missing():
        raise ExportFailed(f"the spark extra is not installed ({', '.join(found)} missing); {REMEDY}")
