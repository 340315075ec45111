"""Compares what the log says of the rows of a table with what its source has, while both are written."""

from __future__ import annotations
