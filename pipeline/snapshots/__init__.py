"""Reads the existing rows of tables, in ranges. Each range gets a place in the stream."""

from __future__ import annotations
