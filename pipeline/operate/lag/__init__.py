"""Measure the lag of each stage, and find the parts that delay changes."""

from __future__ import annotations
