"""Spark reads `sequin_events`: this module is found by its name, `spark.read.format("sequin_events")` just works."""

from __future__ import annotations

from pyspark_sequin_events.source import SequinEvents as DefaultSource

__all__ = ["DefaultSource"]
