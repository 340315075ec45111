"""Writes the log to one follower: whole transactions, each exactly once."""

from __future__ import annotations
