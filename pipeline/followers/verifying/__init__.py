"""Compares the tables of a follower with the source's, by content, while both are written."""

from __future__ import annotations
