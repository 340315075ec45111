"""Cursor consumers: who reads, what comes next, and in which frames it is sent."""

from __future__ import annotations
