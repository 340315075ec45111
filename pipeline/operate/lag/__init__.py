"""Lag by stage, and what limits each."""

from __future__ import annotations
