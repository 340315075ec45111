"""Which session must end, and which slot is its own."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pipeline.capture.source.slots import Slot
from pipeline.config import settings
from pipeline.wal.lsn import Lsn
from pipeline.wires.pgdeltastream.sessions.bounds import SessionFacts, is_its_own, why_end
from pipeline.wires.pgdeltastream.sessions.store import StoredSession, walsender_name

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CONFIG = settings.load(sessions_idle="1h", sessions_wal="1000")
SESSION = StoredSession(
    id=1,
    slot="delta_pet1",
    wire="pgdeltastream",
    source_id=uuid.UUID(int=1),
    epoch=0,
    system_identifier="1",
    state="ready",
    made_after=100,
    position=200,
    created_at=NOW - timedelta(days=1),
    used_at=NOW - timedelta(minutes=1),
)
SLOT = Slot("delta_pet1", "pgoutput", "shop", False, False, None, None, Lsn(90), Lsn(150), "reserved", 1000)
OWN = walsender_name("delta_pet1")


@pytest.mark.parametrize(
    ("session", "slot", "in_use", "said"),
    [
        ({}, {}, False, None),
        ({"used_at": NOW - timedelta(minutes=59)}, {}, False, None),
        (
            {"used_at": NOW - timedelta(minutes=61)},
            {},
            False,
            "no client used it for longer than PIPELINE_SESSIONS_IDLE",
        ),
        ({"used_at": NOW - timedelta(minutes=61)}, {}, True, None),
        ({}, {"retained_bytes": 1001}, True, "kept 1,001 bytes of WAL for it, and PIPELINE_SESSIONS_WAL is 1000"),
        ({}, {"wal_status": "lost", "restart_lsn": None, "retained_bytes": None}, False, "was invalidated"),
        ({}, {"confirmed_lsn": Lsn(201)}, False, "another slot of that name was created"),
        ({}, {"plugin": "wal2json"}, False, "another slot of that name was created"),
        ({"state": "making", "position": None, "created_at": NOW - timedelta(seconds=119)}, {}, False, None),
        ({"state": "making", "position": None, "created_at": NOW - timedelta(seconds=121)}, {}, True, "never finished"),
    ],
)
def test_why_a_session_ends(session: dict[str, Any], slot: dict[str, Any], in_use: bool, said: str | None):
    found = why_end(replace(SESSION, **session), SessionFacts(replace(SLOT, **slot), in_use), NOW, CONFIG, "shop")
    assert (found is None) == (said is None)
    assert said is None or said in (found or "")


def test_a_session_without_a_slot_ends():
    assert "no longer exists" in (why_end(SESSION, SessionFacts(None, False), NOW, CONFIG, "shop") or "")


def test_a_source_that_has_written_less_than_was_acknowledged_was_restored() -> None:
    facts = SessionFacts(SLOT, True, restored=True)
    assert "restored to a state that is older than" in (why_end(SESSION, facts, NOW, CONFIG, "shop") or "")


@pytest.mark.parametrize(
    ("position", "slot", "expected"),
    [
        (200, {}, True),
        (200, {"confirmed_lsn": Lsn(100)}, True),
        (200, {"confirmed_lsn": Lsn(200), "active_pid": 7, "holder": "another program"}, True),
        (200, {"confirmed_lsn": Lsn(99)}, False),
        (200, {"confirmed_lsn": Lsn(201)}, False),
        (200, {"database": "other"}, False),
        (200, {"two_phase": True}, False),
        (200, {"confirmed_lsn": None, "active_pid": 7, "holder": "another client that makes one"}, False),
        (None, {"confirmed_lsn": None, "active_pid": 7, "holder": OWN}, True),
        (None, {"confirmed_lsn": Lsn(150)}, True),
        (None, {"confirmed_lsn": Lsn(150), "active_pid": 7, "holder": OWN}, True),
        (None, {"confirmed_lsn": Lsn(150), "active_pid": 7, "holder": "another program"}, False),
        (None, {"confirmed_lsn": Lsn(99)}, False),
    ],
)
def test_only_a_slot_that_was_made_for_it_is_its_own(position: int | None, slot: dict[str, Any], expected: bool):
    assert is_its_own(replace(SESSION, position=position), replace(SLOT, **slot), "shop") == expected
