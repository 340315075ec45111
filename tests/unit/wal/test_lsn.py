"""LSNs read and print as Postgres does."""

from __future__ import annotations

import pytest

from pipeline.wal import lsn


@pytest.mark.parametrize(("text", "value"), [("0/0", 0), ("0/1F42720", 0x1F42720), ("16/B374D848", 0x16B374D848)])
def test_round_trip(text: str, value: int) -> None:
    assert lsn.parse(text) == value
    assert lsn.show(value) == text


@pytest.mark.parametrize("text", ["", "12", "x/y"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"LSN|base 16"):
        lsn.parse(text)
