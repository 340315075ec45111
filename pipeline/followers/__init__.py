"""Followers: databases that the server keeps equal to the source by applying the log."""

from __future__ import annotations
