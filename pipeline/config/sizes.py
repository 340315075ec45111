"""Amounts of bytes as settings have them: `1GB`, `64MB`, `16kB`, `1GiB`, or a bare number."""

from __future__ import annotations

from pydantic import ByteSize, TypeAdapter, ValidationError

OFF = "off"
"""The word for no amount at all."""
MOST = 2**62
"""What an LSN can hold, and more than any WAL."""
_BYTES = TypeAdapter(ByteSize)


def parse(text: str) -> int | None:
    """Bytes, at least 1, GB in powers of 1000 and GiB of 1024; None for `off`. Raises ValueError that says what was
    expected.
    """
    if text == OFF:
        return None
    try:
        found = int(_BYTES.validate_python(text))
    except (ValidationError, OverflowError):
        found = 0
    if not 0 < found <= MOST:
        raise ValueError(
            f"expected bytes, with kB, MB, GB or GiB if you like, such as 64MB or 1GB, or off; not {text!r}"
        )
    return found
