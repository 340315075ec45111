"""What people read: sizes, durations, a status without anything, long lines in a pipe."""

from __future__ import annotations

import pytest

from pipeline.errors import PipelineError
from pipeline.operations import report, words
from pipeline.operations.findings import Finding, of_error
from pipeline.operations.status import Progress, Status


@pytest.mark.parametrize(
    ("size", "shown"),
    [(None, "-"), (0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (16_777_216, "16.8 MB"), (5 * 10**15, "5000.0 TB")],
)
def test_sizes(size: int | None, shown: str) -> None:
    assert words.size(size) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"), [(-1, "0 s"), (0.4, "0 s"), (61, "1 min 1 s"), (3600, "1 h"), (200_000, "2 d 7 h")]
)
def test_durations(seconds: float, shown: str) -> None:
    assert words.ago(seconds) == shown


def test_a_database_that_was_never_migrated(capsys: pytest.CaptureFixture[str]) -> None:
    report.status(Status(reasons=["never migrated; start [serve]"]))
    assert capsys.readouterr().out == "not replicating\n  never migrated; start [serve]\n"


def test_a_status_that_knows_little(capsys: pytest.CaptureFixture[str]) -> None:
    report.status(Status(revision="0001", slot="pipeline", reasons=["x"], progress=Progress(open_changes=1_000_000)))
    shown = capsys.readouterr().out
    assert "slot pipeline does not exist" in shown
    assert "1,000,000 of one that has not ended" in shown


def test_lines_are_whole_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    report.findings([Finding("error", "thing", "very long " * 30 + "end")])
    assert "very long end" in capsys.readouterr().out


def test_an_error_is_split_before_its_remedy() -> None:
    assert of_error("x", PipelineError("a; b; do c")) == Finding("error", "x", "a; b", "do c")
    assert of_error("x", PipelineError("a")) == Finding("error", "x", "a")
