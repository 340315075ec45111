"""Parses durations in settings: `7d`, `12h`, `30m`, `45s`."""

from __future__ import annotations

import re

NONE = "none"
"""The value of a setting that states no duration."""
_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}


def parse(text: str) -> float | None:
    """Parse a duration or `none`: return its seconds, at least 1; None for `none`. Raises ValueError."""
    return None if text == NONE else _seconds(text, ", or none")


def seconds(text: str) -> float:
    """Parse a duration: return its seconds, at least 1. The text of its ValueError says what was expected."""
    return _seconds(text, "")


def _seconds(text: str, otherwise: str) -> float:
    found = re.fullmatch(r"(\d{1,9})([dhms])", text)
    if found is None or not int(found[1]):
        raise ValueError(f"expected a number with d, h, m or s, such as 7d, 12h, 30m or 45s{otherwise}; not {text!r}")
    return float(int(found[1]) * _UNITS[found[2]])
