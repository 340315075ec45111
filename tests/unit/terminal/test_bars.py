"""What a command waits for is said on standard error; standard output is for the result."""

from __future__ import annotations

import pytest

from pipeline.terminal import bars


def test_a_wait_is_said_in_a_line_and_seldom_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with bars.waiting() as tell:
        for text in ("waiting for a", "waiting for a", "waiting for b"):
            tell(text)
        monkeypatch.setattr(bars, "LINE_SECONDS", 0.0)
    with bars.waiting() as tell:
        for text in ("waiting for c", "waiting for c", "waiting for d"):
            tell(text)
    printed = capsys.readouterr()
    assert printed.err.splitlines() == ["waiting for a", "waiting for c", "waiting for d"]
    assert printed.out == ""
