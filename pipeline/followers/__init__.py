"""Followers: databases that are kept equal to the source from the log. Which there are, and what may become one."""

from __future__ import annotations
