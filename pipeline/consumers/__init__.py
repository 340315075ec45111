"""Live readers: consumers, how far each has read, and how they are woken when there is more."""

from __future__ import annotations
