"""The wire of walstream: every event to every session, and one position that moves when all have acknowledged."""

from __future__ import annotations
