"""Drop events that are old enough, so that no reader misses any without an error."""

from __future__ import annotations
