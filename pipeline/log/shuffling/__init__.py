"""Staged rows become ordered events: one writer at a time, whole transactions, watermark and rows in one commit."""

from __future__ import annotations
