"""The commands and endpoints for followers: add, wait, release, resync, verify, watch."""

from __future__ import annotations
