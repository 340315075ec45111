"""Check for the packages of the extras `spark` and `iceberg`, which only exports need, without importing them."""

from __future__ import annotations

from collections.abc import Collection
from importlib.util import find_spec

from pipeline.config.values import ICEBERG
from pipeline.errors import ExportFailedError

PACKAGES = ("pyspark", "pyarrow", "adbc_driver_postgresql")
REMEDY = "in a checkout: pip install '.[spark]'"
ICEBERG_PACKAGES = ("pyiceberg",)
ICEBERG_REMEDY = "in a checkout: pip install '.[iceberg]', or leave iceberg out of PIPELINE_EXPORT_FORMATS"


def missing() -> list[str]:
    """Return the names of the packages that are not installed; empty if exports can run."""
    return [name for name in PACKAGES if find_spec(name) is None]


def missing_reason(formats: Collection[str]) -> str | None:
    """Return why these formats cannot be exported, if packages for them are missing; else None."""
    found = [name for name in ICEBERG_PACKAGES if find_spec(name) is None] if ICEBERG in formats else []
    return f"the iceberg extra is not installed ({', '.join(found)} missing)" if found else None


def require(formats: Collection[str] = ()) -> None:
    """Raise ExportFailedError if a package is missing for exports in these formats."""
    if found := missing():
        raise ExportFailedError(f"the spark extra is not installed ({', '.join(found)} missing); {REMEDY}")
    if lacking := missing_reason(formats):
        raise ExportFailedError(f"{lacking}; {ICEBERG_REMEDY}")
