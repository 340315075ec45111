"""Catch-up: a backlog is read by several slots at once, as many as the source and the host can spare."""

from __future__ import annotations
