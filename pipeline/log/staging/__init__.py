"""Staging: raw changes, durable and not yet in the log. `wal_events`, its segments, and the progress of each worker."""

from __future__ import annotations
