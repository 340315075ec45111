"""What is said of sessions: what each does, what would end it and when, and which gives way to another one."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

from pipeline.capture.source.slots import Slot
from pipeline.config.settings import Config, load
from pipeline.terminal import drawing
from pipeline.terminal.json_values import as_json
from pipeline.wires.pgdeltastream import metrics as session_metrics
from pipeline.wires.pgdeltastream import render as shown
from pipeline.wires.pgdeltastream import status
from pipeline.wires.pgdeltastream.sessions.store import StoredSession
from pipeline.wires.pgdeltastream.status import SessionsAtSource, SessionsReport

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
READER = "127.0.0.1:50123 through server db1-4711"
LIMITED: dict[str, Any] = {"wires": "pgdeltastream", "sessions_idle": "1h", "sessions_wal": "10GB", "sessions_max": 4}


def ago(**amount: float) -> datetime:
    return NOW - timedelta(**amount)


def session(slot: str = "delta_few7", state: str = "ready", **values: Any) -> StoredSession:
    made: dict[str, Any] = {"created_at": ago(hours=2), "used_at": ago(minutes=12), "position": 4096} | values
    return StoredSession(1, slot, "pgdeltastream", uuid.UUID(int=0), 0, "7", state, 4000, **made)


def slot(name: str = "delta_few7", pid: int | None = None, kept: int = 300_000_000, **values: Any) -> Slot:
    made: dict[str, Any] = {"wal_status": "reserved", "holder": f"pipeline session {name}" if pid else None} | values
    return Slot(
        name, "pgoutput", "shop", False, False, pid, made.pop("holder"), 4000, 4096, retained_bytes=kept, **made
    )


def at(*found: Slot, exporting: str | None = None) -> SessionsAtSource:
    return SessionsAtSource({each.name: each for each in found}, frozenset([exporting] if exporting else []))


def sessions(known: list[StoredSession], there: SessionsAtSource | None, **settings: Any) -> SessionsReport:
    config: Config = load(**LIMITED | settings)
    return status.report(config, known, there, NOW)


@pytest.mark.parametrize(
    ("known", "there", "state", "since", "said", "ends"),
    [
        (
            session(state="making", position=None),
            at(),
            "making",
            ago(hours=2),
            "its slot is being made",
            "if its server ends before it is made",
        ),
        (
            session(),
            at(slot(), exporting="delta_few7"),
            "snapshot",
            ago(minutes=12),
            "its snapshot can be read; no stream yet",
            "if it is not used within 48 min; if it holds back 10.0 GB, 9.7 GB more",
        ),
        (
            session(reader=READER, reader_since=ago(hours=1)),
            at(slot(pid=4711)),
            "streamed",
            ago(hours=1),
            f"streamed by {READER}",
            "if it holds back 10.0 GB, 9.7 GB more",
        ),
        (
            session(),
            at(slot(pid=4711, holder="psql")),
            "streamed",
            ago(minutes=12),
            "streamed by psql (pid 4711)",
            "if it holds back 10.0 GB, 9.7 GB more",
        ),
        (
            session(reader=READER, reader_since=ago(hours=1)),  # its server was killed
            at(slot(kept=12 * 10**9)),
            "idle",
            ago(minutes=12),
            "no client reads it",
            "if it is not used within 48 min; if it holds back 10.0 GB, 0 B more",
        ),
        (
            session(),
            at(),
            "lost",
            ago(minutes=12),
            "its slot can no longer be read",
            "within seconds: its slot no longer exists, or has lost its WAL",
        ),
        (
            session(),
            at(slot(wal_status="lost")),
            "lost",
            ago(minutes=12),
            "its slot can no longer be read",
            "within seconds: its slot no longer exists, or has lost its WAL",
        ),
        (session(), None, "unknown", ago(minutes=12), "the source does not answer", "if it holds back 10.0 GB"),
    ],
)
def test_each_state_and_what_would_end_it(
    known: StoredSession, there: SessionsAtSource | None, state: str, since: datetime, said: str, ends: str
) -> None:
    (found,) = sessions([known], there).live
    assert (found.state, found.since, shown.describe_state(found), found.ends) == (state, since, said, ends)


def test_the_one_that_gives_way_is_named_only_where_there_is_no_room() -> None:
    known = [
        session("delta_a", used_at=ago(minutes=9)),
        session("delta_b", used_at=ago(minutes=20)),
        session("delta_c", used_at=ago(minutes=40), reader=READER),
    ]
    there = at(slot("delta_a"), slot("delta_b"), slot("delta_c", pid=1))
    gives_way = "at once if a client asks for another session"
    assert [gives_way in each.ends for each in sessions(known, there, sessions_max=3).live] == [False, True, False]
    assert not any(gives_way in each.ends for each in sessions(known, there, sessions_max=4).live)
    just_left = [session("delta_a", used_at=ago(minutes=4))]
    assert gives_way not in sessions(just_left, at(slot("delta_a")), sessions_max=1).live[0].ends


def test_in_json_a_position_is_an_lsn_and_what_is_left_is_bytes() -> None:
    (found,) = as_json(sessions([session()], at(slot())))["live"]
    assert (found["position"], found["position_bytes"], found["left_bytes"]) == ("0/1000", 4096, 9_700_000_000)
    assert found["ends_at"] == "2026-03-04T12:48:00+00:00"


def test_a_terminal_shows_them_and_those_that_have_ended(capsys: pytest.CaptureFixture[str]) -> None:
    over = session(
        "delta_pet1", "ended", ended_at=datetime.now(UTC) - timedelta(minutes=5), reason="it was idle for 1 h"
    )
    drawing.show(*shown.sections(sessions([session(), over], at(slot()))))
    first, line, _, ended, why = (line.split("   ") for line in capsys.readouterr().out.splitlines())
    assert first[0] == "sessions (1 of 4)"
    assert line[0].strip() == "delta_few7" and "300.0 MB" in [cell.strip() for cell in line]
    assert ended[0] == "ended sessions" and [cell.strip() for cell in why if cell][-1] == "it was idle for 1 h"


def test_nothing_is_shown_where_there_is_nothing() -> None:
    assert list(shown.sections(None)) == list(shown.sections(sessions([], None))) == []


def metrics(found: SessionsReport | None) -> list[str]:
    class Once(Collector):
        def collect(self):
            return session_metrics.collect(found)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Once())
    return [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]


def test_metrics() -> None:
    known = [session(), session("delta_pet1", reader=READER), session("delta_x", "making", position=None)]
    found = metrics(sessions(known, at(slot(), slot("delta_pet1", pid=1, kept=7))))
    assert 'pipeline_sessions{state="idle"} 1.0' in found and 'pipeline_sessions{state="lost"} 0.0' in found
    assert 'pipeline_sessions{state="making"} 1.0' in found and 'pipeline_sessions{state="streamed"} 1.0' in found
    assert "pipeline_sessions_max 4.0" in found and "pipeline_sessions_wal_limit_bytes 1e+10" in found
    assert 'pipeline_session_retained_bytes{slot="delta_pet1",wire="pgdeltastream"} 7.0' in found
    used = [line for line in found if line.startswith("pipeline_session_used_timestamp_seconds")]
    assert len(used) == 2 and not any("delta_pet1" in line for line in used)


def test_no_metrics_where_no_wire_is_served_and_no_session_is_left() -> None:
    assert metrics(None) == metrics(sessions([], None, wires="")) == []
    assert metrics(sessions([], None)) != [] != metrics(sessions([session()], at(slot()), wires=""))
