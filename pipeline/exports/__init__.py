"""Events out, at rest: Spark jobs that bring the log into a lake of Parquet files, each run a process of its own."""

from __future__ import annotations
