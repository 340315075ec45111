"""Exports: Spark jobs that write the log to a lake of Parquet files, each run in its own process."""

from __future__ import annotations
