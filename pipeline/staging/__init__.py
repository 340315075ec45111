"""Raw changes, durable and not yet in the log: `wal_events`, its segments, and how far each worker has got."""

from __future__ import annotations
