"""Copies rows of the source to a follower, each table in its own snapshot."""

from __future__ import annotations
