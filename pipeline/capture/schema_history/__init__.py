"""The schema history: every version of the source's tables, and from which place in the WAL it holds."""

from __future__ import annotations
