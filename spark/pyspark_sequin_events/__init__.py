"""Spark reads `sequin_events`: this module is found by its name, `spark.read.format("sequin_events")` just works."""

from __future__ import annotations

from typing import Any

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> Any:
    """What Spark looks for; tasks of an export import this package too, and need not wait for it."""
    if name != "DefaultSource":
        raise AttributeError(name)
    from pyspark_sequin_events.source import SequinEvents

    return SequinEvents
