"""`pipeline verify`: whether a log keeps its guarantees."""

from __future__ import annotations
