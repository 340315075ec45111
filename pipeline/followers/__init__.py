"""Followers: databases that are kept equal to the source from the log."""

from __future__ import annotations
