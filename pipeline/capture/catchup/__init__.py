"""A backlog read by many slots at once: who reads which part of it, within what the source and the host can spare."""

from __future__ import annotations
