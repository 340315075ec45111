"""The copy with which a follower begins: rows of the source, each table in a snapshot of its own."""

from __future__ import annotations
