"""What people read: sizes, durations, a status without anything, long lines in a pipe."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from rich.text import Text

from pipeline.cli.render import status
from pipeline.errors import PipelineError
from pipeline.findings import CheckFinding, of_error
from pipeline.operate.known_sources import KnownSource
from pipeline.operate.lag.model import LagLimit, LagReport, LagStage
from pipeline.operate.status import PipelineProgress, PipelineStatus
from pipeline.terminal import drawing
from pipeline.wal import lsn

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize(
    ("size", "shown"),
    [(None, "-"), (0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (16_777_216, "16.8 MB"), (5 * 10**15, "5000.0 TB")],
)
def test_sizes(size: int | None, shown: str) -> None:
    assert drawing.size(size) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"), [(-1, "0 s"), (0.4, "0 s"), (61, "1 min 1 s"), (3600, "1 h"), (200_000, "2 d 7 h")]
)
def test_durations(seconds: float, shown: str) -> None:
    assert drawing.ago(seconds) == shown


def test_a_database_that_was_never_migrated(capsys: pytest.CaptureFixture[str]) -> None:
    status.show_status(PipelineStatus(reasons=["never migrated; start [serve]"]))
    assert capsys.readouterr().out == "not replicating\n  never migrated; start [serve]\n"


def test_a_status_that_knows_little(capsys: pytest.CaptureFixture[str]) -> None:
    status.show_status(
        PipelineStatus(
            revision="0001", slot="pipeline", reasons=["x"], progress=PipelineProgress(open_changes=1_000_000)
        ),
        everything=True,
    )
    shown = capsys.readouterr().out
    assert "slot pipeline is not known" in shown
    assert "1,000,000 of a transaction that is still open" in shown


def test_no_word_has_two_positions(capsys: pytest.CaptureFixture[str]) -> None:
    stages = [LagStage(name, 9000, 0, 0.0, 0, 0.0) for name in ("decoded", "received", "staged", "shuffled")]
    progress = PipelineProgress(
        staged_lsn=lsn.Lsn(8000), shuffled_lsn=lsn.Lsn(7000), staged_changes=4, events=3, last_seq=3
    )
    lag = LagReport([LagLimit("nothing", "nothing")], 9000, stages)
    now = PipelineStatus(revision="1", source_lsn=9000, confirmed_lsn=8000, progress=progress, lag=lag)
    status.show_status(now, everything=True)
    shown = capsys.readouterr().out
    words = re.findall(r"^(\w+) +(\w+/\w+) ", shown, re.MULTILINE)
    assert len(dict(words)) == len(set(words)) >= 6
    assert "3 events in the log, newest seq 3, last commit at 0/1B58" in shown
    status.show_status(PipelineStatus(revision="1", progress=progress), everything=True)
    assert "stored      0/1F40" in capsys.readouterr().out


def test_lag_is_a_time_and_bytes_are_behind(capsys: pytest.CaptureFixture[str]) -> None:
    status.show_status(PipelineStatus(revision="1", lag_bytes=1_300_000, lag_seconds=42.0))
    assert "lag          42.0 s, the log is 1.3 MB behind the source" in capsys.readouterr().out


def test_lines_are_whole_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    status.show_findings([CheckFinding("error", "thing", "very long " * 30 + "end")])
    assert "very long end" in capsys.readouterr().out


def test_an_error_is_split_before_its_remedy() -> None:
    assert of_error("x", PipelineError("a; b; do c")) == CheckFinding("error", "x", "a; b", "do c")
    assert of_error("x", PipelineError("a")) == CheckFinding("error", "x", "a")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (0, "0"),
        (1234567, "1234567"),
        ("", ""),
        (datetime(2026, 3, 4, 7, 6, 7, 89, timezone(timedelta(hours=2))), "2026-03-04 05:06:07 UTC"),
        (Text("x", "bold"), Text("x", "bold")),
    ],
)
def test_a_cell_of_a_table(value: object, shown: str | Text) -> None:
    assert drawing.cell(value) == shown


def test_missing_numbers_are_dashes_and_positions_are_printed_as_lsns() -> None:
    assert [drawing.whole(None), drawing.lasted(None), drawing.position(None)] == ["-", "-", "-"]
    assert [drawing.whole(1234), drawing.lasted(3.14), drawing.position(2**33 + 171)] == [
        "1,234",
        "3.1 s",
        "2/AB",
    ]


def test_sections_that_there_are_stand_apart(capsys: pytest.CaptureFixture[str]) -> None:
    drawing.show(None, drawing.table(("a", "b"), [(1, None)]), None, drawing.facts([("label", "value", "note")]))
    assert capsys.readouterr().out == "a   b\n1   -\n\nlabel   value   note\n"


def test_columns_are_aligned_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    drawing.show(drawing.table(("name", "state", ""), [("a", "running", "x" * 300), ("longer", "is", "")]))
    assert capsys.readouterr().out == f"name     state\na        running   {'x' * 300}\nlonger   is\n"


@pytest.mark.parametrize(
    ("rows", "about"), [(0, 0), (1, 1), (99, 99), (101, 100), (150_001, 150_000), (95_700, 96_000), (996, 1000)]
)
def test_estimates_have_two_digits(rows: int, about: int) -> None:
    assert drawing.estimate(rows) == about


@pytest.mark.parametrize(
    ("number", "shown"), [(0, "0 rows/s"), (0.6, "1 row/s"), (1, "1 row/s"), (1234.5, "1,234 rows/s")]
)
def test_a_rate_has_its_noun_in_the_right_number(number: float, shown: str) -> None:
    assert drawing.rate(number) == shown


def test_nouns_of_numbers_are_counted_by_one_function() -> None:
    """A number with separators and a plural behind it would say "1 rows"."""
    counted = re.compile(r"\{[^{}]*:,(?:\.0f)?\} (?!bytes|rows/s)[a-z]+s\b")
    files = [path for path in (ROOT / "pipeline").glob("**/*.py") if "import drawing" in path.read_text("utf-8")]
    assert [(path.name, found) for path in files for found in counted.findall(path.read_text("utf-8"))] == []


def test_a_source_keeps_its_id_in_one_line_of_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawing, "console", lambda: drawing.EscapedConsole(width=60))
    name, since = "0198c9f1-3c1e-7d92-9b0c-5a3c8f1f2a77", datetime(2026, 11, 30, tzinfo=UTC)
    status.show_sources([KnownSource(name, 0, "shop", "7" * 19, None, "slot", ["first", "second"], 2**33, since)])
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert [lines[0], lines[4], lines[-1]] == [f"source {name}", "timeline -", "since 2026-11-30 00:00:00 UTC"]
