"""Source WAL to staged rows."""

from __future__ import annotations
