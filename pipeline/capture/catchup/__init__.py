"""Catch-up: several slots read a backlog at the same time, as many as the source and the host can spare."""

from __future__ import annotations
