"""Capture turns the source's WAL into staged rows."""

from __future__ import annotations
