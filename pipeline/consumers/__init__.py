"""Live readers: consumers, their positions in the log, and how they are woken when new events arrive."""

from __future__ import annotations
