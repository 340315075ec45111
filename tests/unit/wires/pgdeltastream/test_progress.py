"""Which position a session stores, and when: after acknowledgements, over idle WAL, and where it would be too much."""

from __future__ import annotations

import pytest

from pipeline.wal import lsn
from pipeline.wires.pgdeltastream.sessions.progress import IDLE_SECONDS, SHUTDOWN_SECONDS, SessionProgress

START, NOW = 0x1000, 100.0
SOON, LATER = NOW + 1, NOW + IDLE_SECONDS


@pytest.fixture
def made() -> SessionProgress:
    return SessionProgress(START, NOW)


def transaction(made: SessionProgress, commit: int, *, framed: bool = True, sent: bool = True) -> None:
    """It ends 8 bytes behind where its commit begins."""
    made.begin(commit)
    made.end(commit + 8, framed)
    if framed and sent:
        made.sent(commit + 8)


def keepalive(made: SessionProgress, wal_end: int, *, asked: bool = False, now: float = SOON) -> bool:
    return made.keepalive(wal_end, asked=asked, now=now)


def test_nothing_moves_by_itself(made: SessionProgress) -> None:
    transaction(made, 0x2000)
    keepalive(made, 0x9000)
    assert (made.due(LATER), made.pending) == (None, True)


def test_an_acknowledgement_is_stored_at_once(made: SessionProgress) -> None:
    transaction(made, 0x2000)
    transaction(made, 0x3000)
    assert made.acknowledge("0/2008")
    assert (made.due(SOON), made.acknowledged) == (0x2008, 0x2008)
    made.rule.confirm(0x2008, SOON)
    assert made.due(LATER) is None
    assert made.acknowledge("0/3FFF") is False
    assert made.acknowledge("0/3008")
    assert made.due(SOON) == 0x3008


def test_what_is_not_sent_yet_cannot_be_acknowledged(made: SessionProgress) -> None:
    transaction(made, 0x2000, sent=False)
    assert made.acknowledge("0/2008") is False
    made.sent(0x2008)
    assert made.acknowledge("0/2008")


def test_idle_wal_is_passed_over_later(made: SessionProgress) -> None:
    keepalive(made, 0x900000)
    assert made.due(LATER - 0.1) is None
    assert made.due(LATER) == 0x900000
    made.rule.confirm(0x900000, LATER)
    assert made.due(LATER + IDLE_SECONDS) is None


def test_idle_wal_waits_for_acknowledgements(made: SessionProgress) -> None:
    transaction(made, 0x2000)
    keepalive(made, 0x4000)
    transaction(made, 0x5000, framed=False)
    assert made.due(LATER) is None
    assert made.acknowledge("0/2008")
    assert made.due(SOON) == 0x2008
    made.rule.confirm(0x2008, SOON)
    assert made.due(SOON + IDLE_SECONDS - 0.1) is None
    assert made.due(SOON + IDLE_SECONDS) == 0x5008


def test_nothing_is_passed_over_inside_of_a_transaction(made: SessionProgress) -> None:
    keepalive(made, 0x2000)
    made.begin(0x3000)
    keepalive(made, 0x9000)
    assert made.due(LATER) is None
    made.end(0x3008, has_frame=False)
    assert made.due(LATER) == 0x3008


def test_a_transaction_begun_during_an_acknowledgement_is_not_skipped(made: SessionProgress) -> None:
    transaction(made, 0x2000)
    made.begin(0x3000)
    assert made.acknowledge("0/2008")
    keepalive(made, 0x9000)
    made.rule.confirm(0x2008, SOON)
    assert made.due(LATER + IDLE_SECONDS) is None


def test_a_source_that_asks_is_answered_at_once_where_all_is_acknowledged(made: SessionProgress) -> None:
    assert keepalive(made, 0x2000, asked=True) is False
    assert made.due(SOON) == 0x2000


def test_a_source_that_asks_twice_for_what_is_not_acknowledged_shuts_down(made: SessionProgress) -> None:
    assert keepalive(made, 0x1800, asked=True) is False
    assert keepalive(made, 0x1800, asked=True, now=SOON + 0.1) is False
    transaction(made, 0x2000)
    assert keepalive(made, 0x3000, asked=True, now=SOON + SHUTDOWN_SECONDS + 1) is False
    assert keepalive(made, 0x3000, asked=True, now=SOON + SHUTDOWN_SECONDS + 1.1) is True


def test_requests_that_are_far_apart_are_no_shutdown(made: SessionProgress) -> None:
    transaction(made, 0x2000)
    for times in range(3):
        assert keepalive(made, 0x3000, asked=True, now=SOON + times * SHUTDOWN_SECONDS) is False


def test_where_the_stream_is(made: SessionProgress) -> None:
    transaction(made, 0x2000)
    assert lsn.show(made.begun) == "0/2000"
