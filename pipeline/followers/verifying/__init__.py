"""Compares the rows of a follower's tables with the rows of the source's tables, while both are written."""

from __future__ import annotations
