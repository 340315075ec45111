"""What people do with followers: add, wait, release, resync, verify, watch."""

from __future__ import annotations
