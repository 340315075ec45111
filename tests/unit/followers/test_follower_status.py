"""What people are told of a follower: what they have asked for comes before what its applier reported."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from pipeline.cli.render import status as status_report
from pipeline.followers.operating import render, status
from pipeline.followers.registry import RegisteredFollower
from pipeline.operate import metrics
from pipeline.operate.status import PipelineStatus
from pipeline.terminal import drawing
from pipeline.terminal.json_values import as_json

NOW = datetime(2026, 11, 25, tzinfo=UTC)
TABLES = [
    {"table_oid": 1, "table_schema": "public", "table_name": "a", "state": "following", "reason": None, "remedy": None},
    {"table_oid": 2, "table_schema": "public", "table_name": "b", "state": "stopped", "reason": "so", "remedy": "do"},
]
REPORTS = RegisteredFollower(
    id=1,
    source_id=uuid.uuid4(),
    name="reports",
    dsn="host=db user=me dbname=shop sslmode=require",
    tables=["public.*"],
    copy_mode="source",
    schema_mode="create",
    ddl="follow",
    on_rewrite="copy",
    truncates=True,
    system_identifier="1",
    database_oid=5,
    database_name="shop",
    wanted="running",
    made_at=NOW,
    made_seq=10,
    seq=40,
    commit_lsn=0x1_0000_0001,
    committed_at=NOW,
    state="following",
    reason=None,
    remedy=None,
    reported_at=NOW,
    lag_seqs=60,
    lag_seconds=1.23456,
    listed_tables=TABLES,
)


@pytest.mark.parametrize(
    ("wanted", "reported", "served", "state", "reason"),
    [
        ("running", "following", True, "following", None),
        ("running", "following", False, "waiting", status.NO_SERVER),
        ("running", "copying", False, "waiting", status.NO_SERVER),
        ("running", "stopped", False, "stopped", None),
        ("running", "stopped", True, "stopped", None),
        ("running", "paused", True, "waiting", "the follower was resumed, and its server has not started it yet"),
        ("paused", "following", True, "paused", "a user has paused it"),
        ("paused", "stopped", False, "paused", "a user has paused it"),
    ],
)
def test_its_state(wanted: str, reported: str, served: bool, state: str, reason: str | None) -> None:
    found = status.follower_status(replace(REPORTS, wanted=wanted, state=reported), served=served)
    assert (found.state, found.reason) == (state, reason)
    assert found.remedy is not None or state not in ("paused",)


def test_as_json() -> None:
    shown = as_json(status.follower_status(REPORTS, served=True))
    assert (shown["commit_lsn"], shown["commit_lsn_bytes"]) == ("1/1", 0x1_0000_0001)
    assert (shown["seq"], shown["lag_seqs"], shown["lag_seconds"]) == (40, 60, 1.235)
    assert shown["database"] == "host=db user=me dbname=shop"
    assert shown["tables"][1] == {"table": "public.b", "state": "stopped", "reason": "so", "remedy": "do"}
    assert shown["lacks"] == "table public.b is stopped: so; do"
    assert {"source_id", "dsn"}.isdisjoint(shown)


def test_in_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    render.show_follower(status.follower_status(REPORTS, served=True))
    shown = " ".join(capsys.readouterr().out.split())
    assert "reports following 2: 1 following, 1 stopped 40 60 seqs 1.2 s" in shown
    assert "database host=db user=me dbname=shop tables public.* copy source, tables with rows are emptied" in shown
    assert "public.b stopped so; do" in shown
    drawing.show(
        *status_report.sections(PipelineStatus(revision="1", followers=[status.follower_status(REPORTS, served=True)]))
    )
    assert "reports following 2: 1 following, 1 stopped" in " ".join(capsys.readouterr().out.split())
    render.show_followers([])
    assert "there are no followers; add one: `pipeline followers add --dsn DSN`" in capsys.readouterr().out


def test_as_metrics() -> None:
    found = status.follower_status(replace(REPORTS, wanted="paused"), served=True)
    exposed = metrics.render(PipelineStatus(followers=[found])).decode()
    assert 'pipeline_follower_lag_seqs{follower="reports"} 60.0' in exposed
    assert 'pipeline_follower_lag_seconds{follower="reports"} 1.235' in exposed
    assert 'pipeline_follower_state{follower="reports",state="paused"} 1.0' in exposed
    assert 'pipeline_follower_lacks_tables{follower="reports"} 1.0' in exposed
    assert 'pipeline_follower_stopped_table{follower="reports",table="public.b"} 1.0' in exposed
    assert 'pipeline_follower_state{follower="reports",state="following"} 0.0' in exposed
    assert "pipeline_follower" not in metrics.render(PipelineStatus()).decode()
