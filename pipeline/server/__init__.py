"""`pipeline serve`: its roles, its schedule, and which of several servers leads."""

from __future__ import annotations
