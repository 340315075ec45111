"""What records consumers have still to acknowledge: items with their delivery state, kept up to date with the log."""

from __future__ import annotations
