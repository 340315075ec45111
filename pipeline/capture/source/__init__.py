"""The source: its slot, publications, timeline and identity, and transactions that it cannot send."""

from __future__ import annotations
