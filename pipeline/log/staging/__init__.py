"""Staging keeps durable changes that are not in the log yet: `wal_events`, its segments, and each worker's progress."""

from __future__ import annotations
