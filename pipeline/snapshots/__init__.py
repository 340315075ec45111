"""Rows that were there before: tables are read in ranges, each of which has a place in the stream."""

from __future__ import annotations
