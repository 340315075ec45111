"""Compares the rows of a table in the log with those at its source, while both are written."""

from __future__ import annotations
