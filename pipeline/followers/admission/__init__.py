"""Checks whether a database can become a follower. Each refusal is one line with its remedy, and changes nothing."""

from __future__ import annotations
