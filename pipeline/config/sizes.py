"""Amounts of bytes as settings have them: `1GB`, `64MB`, `16kB`, `1GiB`, or a bare number."""

from __future__ import annotations

from pydantic import ByteSize, TypeAdapter, ValidationError

OFF = "off"
"""The value of a setting that states no limit."""
MOST = 2**62
"""The largest LSN, and more than any WAL has."""
_BYTES = TypeAdapter(ByteSize)


def parse(text: str) -> int | None:
    """Return bytes, at least 1, with GB in powers of 1000 and GiB of 1024; None for `off`.

    Raises ValueError that says what was expected.
    """
    return None if text == OFF else _amount(text, ", or off")


def amount(text: str) -> int:
    """Return bytes as `parse` does, without `off`."""
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
