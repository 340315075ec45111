"""Which events are old enough to be dropped, and how they are dropped so that no reader misses any unknowingly."""

from __future__ import annotations
