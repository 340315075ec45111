"""Commands for operators: status, lag, retention, the preflight check, verification and repairs."""

from __future__ import annotations
