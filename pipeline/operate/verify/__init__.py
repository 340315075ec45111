"""`pipeline verify`: check that a log keeps its guarantees."""

from __future__ import annotations
