"""The source: its slot, publications, timeline and identity, and what it cannot send."""

from __future__ import annotations
