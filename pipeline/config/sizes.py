"""Parses amounts of bytes in settings: `1GB`, `64MB`, `16kB`, `1GiB`, or a number without a unit."""

from __future__ import annotations

from pydantic import ByteSize, TypeAdapter, ValidationError

OFF = "off"
"""The value of a setting that states no limit."""
MOST = 2**62
"""The most bytes that a setting may state: more than any WAL has."""
_BYTES = TypeAdapter(ByteSize)


def parse(text: str) -> int | None:
    """Parse an amount or `off`: return its bytes, at least 1; None for `off`.

    A GB is 1000³ bytes, a GiB 1024³. The text of its ValueError says what was expected.
    """
    return None if text == OFF else _amount(text, ", or off")


def amount(text: str) -> int:
    """Parse an amount as `parse` does, but do not accept `off`."""
    return _amount(text, "")


def _amount(text: str, otherwise: str) -> int:
    try:
        found = int(_BYTES.validate_python(text))
    except (ValidationError, OverflowError):
        found = 0
    if not 0 < found <= MOST:
        raise ValueError(
            f"expected bytes, with or without a unit (kB, MB, GB, GiB), such as 64MB or 1GB{otherwise}; not {text!r}"
        )
    return found
