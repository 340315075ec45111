"""The queues of records consumers: unacknowledged items with their delivery state, kept up to date with the log."""

from __future__ import annotations
