"""The `pipeline` command."""

from __future__ import annotations
