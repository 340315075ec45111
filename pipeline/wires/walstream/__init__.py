"""The protocol of walstream: sends every event to every session; one position moves when all have acknowledged."""

from __future__ import annotations
