"""Databases whose tables are kept equal to the source's by what the log says."""

from __future__ import annotations
