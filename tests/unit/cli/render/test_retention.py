"""What people and Prometheus read of retention."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from pipeline.cli.render import retention as retention_report
from pipeline.cli.render import status
from pipeline.operate import metrics
from pipeline.operate.retention import EventHolder, RetentionOutcome, RetentionStatus
from pipeline.operate.status import PipelineStatus

CONSUMER = EventHolder("consumer", "slow", 123, "`pipeline consumers reset slow` or `pipeline consumers delete slow`")


def some_retention(**values: object) -> RetentionStatus:
    now = datetime.now(UTC)
    known = {"dropped_below": 101, "dropped_at": now, "first_seq": 101, "bytes": 5_000_000, "held_by": [CONSUMER]}
    oldest_at = now - timedelta(days=8, minutes=1)
    return RetentionStatus("7d", "public.sequin_events", oldest_at=oldest_at, **(known | values))  # type: ignore[arg-type]


def test_status_names_what_holds_back_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    now = PipelineStatus(revision="0005", retention=some_retention())
    status.show_status(now)
    held_back = 'held back   by   consumer "slow" is at 123; `pipeline consumers reset slow` or'
    assert held_back in capsys.readouterr().out
    status.show_status(now, everything=True)
    shown = capsys.readouterr().out
    assert "older than 7d is dropped   everything below seq 101 was dropped" in shown
    assert "from seq 101" in shown
    assert 'consumer "slow" is at 123; `pipeline consumers reset slow` or `pipeline consumers delete slow`' in shown


def test_a_dry_run_says_what_would_go_and_when_more_will(capsys: pytest.CaptureFixture[str]) -> None:
    due = datetime.now(UTC) + timedelta(hours=1)
    retention_report.show_dry_run(some_retention(droppable=["pipeline.a", "pipeline.b"], trim_from=201, due=due))
    shown = capsys.readouterr().out
    assert "would drop 2 partitions: pipeline.a, pipeline.b" in shown
    assert "would delete events older than 7d row by row, from seq 201 on" in shown
    assert f"the next events are old enough at {due:%Y-%m-%d %H:%M:%S} UTC" in shown


def test_a_dry_run_without_anything_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    retention_report.show_dry_run(some_retention(dropped_at=None, dropped_below=1))
    shown = capsys.readouterr().out
    assert "nothing was dropped yet" in shown
    assert "nothing would be dropped now" in shown


def test_a_run_says_what_went(capsys: pytest.CaptureFixture[str]) -> None:
    retention_report.show_outcome(RetentionOutcome(partitions=1, rows=2_000), some_retention())
    assert "1 partition, 2,000 rows of other partitions dropped" in capsys.readouterr().out


def test_what_was_dropped_is_shown_when_the_setting_is_gone(capsys: pytest.CaptureFixture[str]) -> None:
    now = datetime.now(UTC)
    status.show_status(
        PipelineStatus(revision="0005", retention=RetentionStatus("none", "public.sequin_events", 101, now)),
        everything=True,
    )
    assert "events are never dropped   everything below seq 101 was dropped" in capsys.readouterr().out


def test_metrics_report_dropped_events_log_size_and_holders() -> None:
    shown = metrics.render(PipelineStatus(retention=some_retention())).decode()
    assert "pipeline_retention_dropped_below_seq 101.0" in shown
    assert "pipeline_retention_log_bytes 5e+06" in shown
    assert 'pipeline_retention_held{kind="consumer",name="slow"} 1.0' in shown
