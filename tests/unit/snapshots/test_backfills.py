"""What people read of backfills: in lists, in status, and while they wait for one."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from rich.console import Console

from pipeline.snapshots import backfill_progress, render
from pipeline.snapshots.backfill_progress import RecentRowRate
from pipeline.snapshots.overview import TableReading
from pipeline.snapshots.snapshot_status import SnapshotStatus
from pipeline.snapshots.status import BackfillStatus
from pipeline.terminal import drawing

WHEN = datetime(2026, 3, 4, tzinfo=UTC)
READING = BackfillStatus(
    *(7, "public.orders", "asked", "id > 5", "reading", None, 3, 12, 12_000, 11_000, 50_000, 4_000.0, 95.4),
    *("public.sequin_events", 10, 20, WHEN, WHEN, None),
)
ENDED = replace(READING, state="complete", ranges_done=12, rows_per_second=None, seconds_left=None, finished_at=WHEN)


def test_a_list(capsys: pytest.CaptureFixture[str]) -> None:
    failed = replace(ENDED, id=8, state="failed", reason="the table was dropped")
    render.show_backfills([READING, failed], None)
    first, second = capsys.readouterr().out.splitlines()[1:]
    assert first.startswith("7          public.orders   asked   reading   3 of 12 ")
    assert "3 of 12" in first and "11,000" in first and "4,000" in first and "about 1 min 35 s" in first
    assert "failed" in second and re.search(r" - +- +the table was dropped$", second.rstrip())
    render.show_backfills([], None)
    assert "begin one: `pipeline backfill start TABLE`" in capsys.readouterr().out
    render.show_backfill(READING)
    shown = capsys.readouterr().out
    assert "50,000 rows of the whole table" in shown and "seq 10 to 20" in shown and "id > 5" in shown


def test_sentences() -> None:
    assert render.line(ENDED) == (
        "backfill 7 of public.orders is complete: 12,000 rows read, 11,000 events; the log had newer events"
        " of the other rows"
    )
    assert render.line(replace(ENDED, rows=12_000)).endswith("12,000 rows read, 12,000 events")
    assert render.line(replace(READING, state="failed", reason="x")) == "backfill 7 of public.orders is failed: x"
    assert "of rows with id > 5; `pipeline backfill show 7`" in render.started(READING, served=True)
    assert render.started(READING, served=False).endswith("no server runs that would read it: start `pipeline serve`")
    assert render.left_running(READING).endswith("`pipeline backfill cancel 7` ends it")


def test_status_is_short_where_all_is_complete(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(render.sections(None)) == []
    assert list(render.sections(SnapshotStatus([], {"complete": 9}, []))) == []
    unread = [TableReading("public.notes", "failed", "this user may not read it")]
    drawing.show(*render.sections(SnapshotStatus([READING], {"complete": 9, "failed": 1, "not read": 2}, unread)))
    shown = capsys.readouterr().out
    assert "public.orders" in shown and "public.notes" in shown and "and 2 more" in shown


def test_the_rate_is_that_of_the_last_seconds() -> None:
    pace = RecentRowRate()
    assert pace.add(0, 100.0) is None
    assert pace.add(1000, 101.0) == 1000
    for second in range(2, 40):
        rate = pace.add(1000 + 100 * second, 100.0 + second)
    assert rate == 100


def test_progress_in_a_pipe_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    with backfill_progress.progress_printer() as tell:
        tell(replace(READING, state="waiting", reason="waits for x", ranges_all=0), served=True)
        tell(READING, served=True)  # too soon for another line
    assert capsys.readouterr().out == "public.orders waiting: waits for x, 4,000 rows/s, about 1 min 35 s left\n"
    seen: list[BackfillStatus] = []
    with backfill_progress.progress_printer(seen.append) as tell:
        for each in (READING, replace(READING, seconds_left=1.0), ENDED):
            tell(each, served=True)
    assert seen == [READING, ENDED]


def test_progress_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(force_terminal=True, width=160, record=True)
    monkeypatch.setattr(drawing, "console", lambda: console)
    with backfill_progress.progress_printer() as tell:
        tell(READING, served=True)
    text = console.export_text()
    for part in ("public.orders reading", "ranges 3 of 12", "12,000 rows", "4,000 rows/s", "about 1 min 35 s left"):
        assert part in text
    assert "no server runs" in backfill_progress.doing(READING, served=False)
