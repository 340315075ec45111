"""What operators look at: status, lag, metrics, the preflight check."""

from __future__ import annotations
