"""Repair commands: adopt a source, skip a transaction, retry dead letters, create a reader's role."""

from __future__ import annotations
