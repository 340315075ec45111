"""The ordered log: the events tables, their partitions, and the notifications of readers."""

from __future__ import annotations
