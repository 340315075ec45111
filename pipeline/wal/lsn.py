"""Log sequence numbers: Postgres prints them as `16/B374D848`; here they are integers that fit a bigint."""

from __future__ import annotations

from typing import Annotated, NewType

Lsn = NewType("Lsn", int)
Shown = Annotated[int, "LSN"]
"""Metadata of a dataclass's field, which text and `--json` then print as Postgres prints LSNs."""


def parse(text: str) -> Lsn:
    """Return an LSN such as `16/B374D848` as an integer. Raises ValueError if the text is no LSN."""
    high, slash, low = text.partition("/")
    if not slash:
        raise ValueError(f"expected an LSN such as 16/B374D848, not {text!r}")
    return Lsn((int(high, 16) << 32) | int(low, 16))


def show(lsn: int) -> str:
    """Return the text of an LSN as Postgres prints it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
