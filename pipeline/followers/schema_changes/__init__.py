"""Applies DDL of the source to a follower's tables."""

from __future__ import annotations
