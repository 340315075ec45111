"""What can go wrong in a benchmark: it cannot run here, or it ran and failed."""

from __future__ import annotations


class CannotRun(Exception):
    """Something this part needs is not on this machine; one line that names it."""


class BenchmarkFailed(Exception):
    """It ran, and did not do what it should; the text says what was seen."""
