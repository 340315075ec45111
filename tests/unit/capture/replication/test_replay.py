"""What the slot sends again is what we have, or it is another history. Bytes in, bytes out."""

from __future__ import annotations

import struct
import uuid

import pytest

from pipeline.capture.replication.replay import ReplayCheck
from pipeline.capture.source.sources import ReplicationSource
from pipeline.capture.source.timeline import StagedReach, require_continued, switch_point
from pipeline.capture.source.walsender import SystemIdentity
from pipeline.errors import DecodeError, HistoryDivergedError
from pipeline.log.staging.progress import StagedPosition
from pipeline.wal import lsn

STAGED = StagedPosition(epoch=0, position=500, commit_lsn=300, committed_at=30)
INSERT = b"I" + struct.pack(">I", 1) + b"N" + bytes(2)
RELATION = b"R" + struct.pack(">I", 1) + b"public\0t\0d" + bytes(2)


def wal(payload: bytes) -> bytes:
    return b"w" + bytes(24) + payload


def begin(final_lsn: int, committed_at: int) -> bytes:
    return wal(b"B" + struct.pack(">QqI", final_lsn, committed_at, 7))


def commit(final_lsn: int) -> bytes:
    return wal(b"C" + struct.pack(">BQQq", 0, final_lsn, final_lsn + 8, 0))


def message(prefix: bytes) -> bytes:
    return wal(b"M" + struct.pack(">BQ", 1, 0) + prefix + b"\0" + struct.pack(">I", 1) + b"x")


def keepalive(wal_end: int, *, asks: bool = False) -> bytes:
    return b"k" + struct.pack(">QqB", wal_end, 0, asks)


def transaction(final_lsn: int, committed_at: int = 0) -> list[bytes]:
    return [begin(final_lsn, committed_at), wal(INSERT), commit(final_lsn)]


LAST, NEW = transaction(300, 30), transaction(500, 50)


def test_nothing_is_checked_where_nothing_comes_again():
    replay = ReplayCheck(STAGED, 500)
    assert (replay.verified, replay.over) == (True, True)


@pytest.mark.parametrize("at", range(9))
def test_a_replay_skips_staged_changes_wherever_it_is_cut(at: int):
    stream = [*transaction(200), wal(RELATION), *LAST, keepalive(320, asks=True), *NEW]
    replay = ReplayCheck(STAGED, 100)
    assert replay.skip(stream[:at]) == []
    assert not replay.verified
    assert replay.skip(stream[at:]) == NEW
    assert replay.over
    assert list(replay.relations.values()) == [wal(RELATION)]
    assert (replay.received, replay.new_from) == (320, 500)


def test_an_idle_source_is_verified_by_its_keepalive():
    replay = ReplayCheck(STAGED, 100)
    replay.skip([*LAST, keepalive(499)])
    assert not replay.verified
    assert replay.skip([keepalive(500)]) == []
    assert (replay.verified, replay.over) == (True, True)


def test_a_keepalive_inside_of_a_transaction_says_nothing():
    replay = ReplayCheck(STAGED, 100)
    assert replay.skip([LAST[0], keepalive(900), *LAST[1:]]) == []
    assert (replay.verified, replay.received) == (False, 0)


@pytest.mark.parametrize(
    "stream",
    [
        transaction(300, 31),
        [*transaction(200), *transaction(301)],
        [keepalive(301)],
        NEW,
        [*LAST, *transaction(400)],
        [*LAST, begin(400, 0), message(b"mine"), commit(400)],
    ],
    ids=["another time", "another one after it", "idle", "beyond our position", "one more", "a message"],
)
def test_another_history_is_refused(stream: list[bytes]):
    with pytest.raises(
        HistoryDivergedError, match=r"^we have stored up to 0/1F4, last of all transaction 0/12C; .* adopt`"
    ):
        ReplayCheck(STAGED, 100).skip(stream)


def test_a_transaction_without_rows_before_our_position_is_nothing():
    replay = ReplayCheck(STAGED, 100)
    empty = [begin(400, 0), message(b"pipeline:annotations"), commit(400)]
    assert replay.skip([*LAST, *empty, *NEW]) == NEW


def test_the_last_transaction_is_not_owed_when_the_slot_is_beyond_it():
    replay = ReplayCheck(STAGED, 400)
    assert replay.skip([keepalive(500)]) == []
    assert replay.over


def test_carried_transactions_are_left_out_up_to_the_fork():
    fork = [begin(700, 0), message(b"pipeline:annotations"), wal(INSERT), commit(700)]
    empty = [begin(650, 0), message(b"pipeline:annotations"), commit(650)]
    replay = ReplayCheck(StagedPosition(1, 500, 0, None), 500, {(600, 60), (700, 70), (800, 80)})
    assert replay.verified
    assert replay.skip([*transaction(600, 60), *empty, *fork]) == fork
    assert replay.over


def test_carried_transactions_end_where_the_source_is_beyond_them():
    replay = ReplayCheck(StagedPosition(1, 500, 0, None), 500, {(600, 60)})
    replay.skip([keepalive(600)])
    assert not replay.over
    replay.skip([*transaction(600, 60), keepalive(620)])
    assert replay.over


def test_a_change_outside_of_a_transaction_is_not_the_protocol():
    with pytest.raises(DecodeError):
        ReplayCheck(STAGED, 100).skip([wal(INSERT)])


HISTORY = "1\t0/1F4\tno recovery target specified\n2\t0/258\tbefore a mistake\n"


@pytest.mark.parametrize(("timeline", "end"), [(1, 500), (2, 600), (3, None)])
def test_where_a_timeline_ended(timeline: int, end: int | None):
    assert switch_point(HISTORY, timeline) == end


def require(now: SystemIdentity, position: int, timeline: int | None = 1, parts: int = 0) -> None:
    stored = ReplicationSource(uuid.uuid4(), 0, "77", "shop", "pipeline", timeline=timeline)
    require_continued(stored, now, StagedReach(position, max(position, parts)), lambda _: HISTORY)


@pytest.mark.parametrize(("timeline", "before"), [(1, 1), (1, None), (3, 1), (3, 2)])
def test_a_history_that_goes_through_our_position(timeline: int, before: int | None):
    require(SystemIdentity("77", timeline, 900, "shop"), 500, before)


@pytest.mark.parametrize(
    ("now", "before", "said"),
    [
        (SystemIdentity("78", 1, 900, "shop"), 1, "of cluster 78, but positions are stored for shop of 77"),
        (SystemIdentity("77", 1, 900, "till"), 1, "database till"),
        (SystemIdentity("77", 3, 900, "shop"), 1, "forked into timeline 3 at 0/1F4, before our position 0/1F5"),
        (SystemIdentity("77", 4, 900, "shop"), 3, "timeline 3, of which we have stored up to 0/1F5, is not"),
        (SystemIdentity("77", 1, 900, "shop"), 2, "the source is in timeline 1, and timeline 2"),
        (SystemIdentity("77", 1, 500, "shop"), 1, "has written WAL only up to 0/1F4, but we have stored up to 0/1F5"),
    ],
)
def test_a_history_that_does_not(now: SystemIdentity, before: int, said: str):
    with pytest.raises(HistoryDivergedError, match=f"{said}.*`pipeline sources adopt`"):
        require(now, lsn.parse("0/1F5"), before)


def test_parts_beyond_the_end_of_wal_may_be_left_after_a_fork():
    require(SystemIdentity("77", 3, 900, "shop"), 500, 1, parts=950)
    with pytest.raises(HistoryDivergedError, match="has written WAL only up to 0/384, but we have stored up to 0/3B6"):
        require(SystemIdentity("77", 3, 900, "shop"), 500, 3, parts=950)
