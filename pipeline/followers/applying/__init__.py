"""The log written to one follower: whole transactions, each once."""

from __future__ import annotations
