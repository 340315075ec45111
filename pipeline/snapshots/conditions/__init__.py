"""Conditions of backfills: their language, and the check that a condition is harmless."""

from __future__ import annotations
