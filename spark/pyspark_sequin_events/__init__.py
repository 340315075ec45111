"""The data source `sequin_events`: Spark finds this module by its name, for `spark.read.format("sequin_events")`."""

from __future__ import annotations

from typing import Any

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> Any:
    """Import the data source when Spark asks for it: tasks of an export import this package, and do not need it."""
    if name != "DefaultSource":
        raise AttributeError(name)
    from pyspark_sequin_events.source import SequinEvents

    return SequinEvents
