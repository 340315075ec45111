"""The ordered log: the events tables, their partitions, and what readers are told."""

from __future__ import annotations
