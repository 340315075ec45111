"""What a command waits for is said on standard error; standard output is for the result."""

from __future__ import annotations

import pytest

from pipeline.terminal import bars


def test_a_long_wait_is_said_in_lines_and_a_short_one_is_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with bars.waiting() as tell:
        tell("waiting for a")
    monkeypatch.setattr(bars, "LINE_SECONDS", 0.0)
    with bars.waiting() as tell:
        for text in ("waiting for b", "waiting for b", "waiting for c"):
            tell(text)
        monkeypatch.setattr(bars, "LINE_SECONDS", 3600.0)
        for text in ("waiting for d", "waiting for e"):
            tell(text)
    printed = capsys.readouterr()
    assert printed.err.splitlines() == ["waiting for b", "waiting for c", "waiting for d"]
    assert printed.out == ""
