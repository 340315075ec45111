"""Cursor consumers: which client reads each cursor, the events that follow, and the frames that carry them."""

from __future__ import annotations
