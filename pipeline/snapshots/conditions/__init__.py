"""Conditions of backfills: their language, and what it may ask for."""

from __future__ import annotations
