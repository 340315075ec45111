"""Parts of a catch-up that become partitions: each with its own seqs, stored when it is its turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import pairwise
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from pipeline.errors import FencedError, ReadAgainError
from pipeline.log import partitions
from pipeline.log.shuffling.shuffler import Shuffler
from pipeline.log.staging.worker_claim import WorkerClaim, connect_staging
from pipeline.log.table import DEFAULT
from pipeline.log.writing import log_writer
from pipeline.log.writing import partition_run as runs
from pipeline.log.writing import partitioned_part as part
from pipeline.log.writing.log_writer import LogWriter, WritingSettings
from pipeline.log.writing.partition_segment import PartitionSegment
from pipeline.log.writing.partitioned_part import PartPath, PartTurn
from tests.fixtures.adopting import SIZES, batch, begun
from tests.fixtures.postgres import Cluster
from tests.fixtures.shuffling import move, now
from tests.fixtures.staged import Staged, Table, insert, staging_of

BEGINS, ENDS = 50_000, 90_000
"""Where the part does."""
PATIENCE = 60.0
SETTINGS = WritingSettings(DEFAULT, sizes=SIZES, clock=now)
EVENTS = "select commit_lsn, commit_idx from sequin_events where commit_lsn >= 1000 order by seq"
WAYS = "select way, sum(changes)::int from pipeline.ways group by 1"
WAITING = "select first_seq, attaches from pipeline.adopted_tables where state = 'waiting' order by first_seq"
PLAN = """
    with part as (
        insert into pipeline.catchup_parts (source_id, worker, epoch, from_lsn, until_lsn, first_seq)
        select source_id, 1, 0, %(begins)s, %(ends)s, %(first_seq)s from pipeline.replication_progress
    )
    insert into pipeline.replication_progress (source_id, worker, epoch, position)
    select source_id, 1, 0, %(begins)s from pipeline.replication_progress"""


@pytest.fixture(scope="module")
def made(cluster: Cluster) -> Iterator[Staged]:
    with staging_of(cluster, Table("orders")) as staged:
        yield staged


@pytest.fixture
def staged(made: Staged, monkeypatch: pytest.MonkeyPatch) -> Staged:
    """One transaction is in the log, and another worker is to read from BEGINS to ENDS."""
    monkeypatch.setattr(part, "LOOK_EVERY", 0.01)
    # A shuffler that gets no processor time for a while counts neither as idle nor as busy for long.
    for name in ("DRAIN_STALLED", "DRAIN_LONGEST"):
        monkeypatch.setattr(runs, name, 60.0)
    monkeypatch.setattr(runs, "LOCK_TIMEOUT", "set local lock_timeout = '60s'")
    made.connection.execute("delete from pipeline.replication_progress where worker > 0")
    made.connection.execute("delete from pipeline.catchup_parts")
    made.reset()
    made.moved(insert("orders", id="first"))
    (first_seq,) = log_writer.reserve_part_seqs(made.connection, made.source, SETTINGS, [BEGINS])
    made.connection.execute(PLAN, {"begins": BEGINS, "ends": ENDS, "first_seq": first_seq})
    return made


class Parts:
    """Two workers: of the slot itself, up to BEGINS, and of the part behind that."""

    first: LogWriter
    second: LogWriter
    part: PartPath

    def __init__(self, staged: Staged) -> None:
        self.log = staged
        self.stopping, self.given_up, self.behind = False, 0, 10**9
        self.shuffler: Shuffler = staged.shuffler()

    async def open(self, one: AsyncConnection[TupleRow], two: AsyncConnection[TupleRow]) -> Parts:
        row = self.log.connection.execute("select first_seq from pipeline.catchup_parts").fetchone()
        assert row is not None
        claims = [await WorkerClaim.acquire(each, self.log.source, worker) for worker, each in enumerate((one, two))]
        self.first = await LogWriter.open(one, claims[0], SETTINGS, behind=lambda: self.behind)
        turn = PartTurn(row[0], self._give_up, lambda: self.stopping)
        self.second = await LogWriter.open(two, claims[1], SETTINGS, part=turn)
        assert isinstance(self.second._partitioned, PartPath)
        self.part = self.second._partitioned
        return self

    async def _give_up(self) -> None:
        self.given_up += 1

    async def end_first(self) -> None:
        """All before the part is staged."""
        await self.first.settle(finish=True)
        await self.first.advance(BEGINS)

    async def shuffling(self, does: Awaitable[object]) -> None:
        """Do it while the shuffler works."""
        doing = asyncio.ensure_future(does)
        while not doing.done():
            await asyncio.to_thread(move, self.shuffler)
            await asyncio.sleep(0.01)
        await doing


def in_parts(staged: Staged, does: Callable[[Parts], Awaitable[None]]) -> None:
    async def run() -> None:
        async with await connect_staging(staged.dsn) as one, await connect_staging(staged.dsn) as two:
            await does(await Parts(staged).open(one, two))

    asyncio.run(run())


def reader(staged: Staged) -> psycopg.Connection[Any]:
    connection = psycopg.connect(staged.dsn)
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    connection.execute("select pg_current_snapshot()")
    return connection


def places(*transactions: tuple[int, int]) -> list[tuple[int, int]]:
    return [(lsn, idx) for lsn, count in transactions for idx in range(count)]


def ways(staged: Staged) -> dict[str, int]:
    return dict(staged.connection.execute(WAYS).fetchall())


def test_a_part_is_filled_beside_the_one_before_it_and_comes_behind_it(staged: Staged):
    """Also for a snapshot of a moment at which a later part had rows, and an earlier one lacked some of its rows."""
    old = []

    async def does(parts: Parts) -> None:
        await parts.second.append(batch(staged, 60_000, 250), durable=False)
        await parts.second.append(begun(staged, 61_000, 100), durable=False)
        await parts.first.append(batch(staged, 1_000, 10), durable=False)
        await parts.second.append(batch(staged, 61_000, 100, first=100), durable=False)
        old.append(reader(staged))
        await parts.first.append(batch(staged, 2_000, 10), durable=False)
        parts.part._taken_at = 0.0
        await parts.second.settle()
        assert parts.part.holds
        assert len(staged.connection.execute(WAITING).fetchall()) == 2
        await parts.end_first()
        old.append(reader(staged))
        await parts.shuffling(parts.second.settle(finish=True))
        await parts.second.append(batch(staged, 62_000, 30), durable=False)
        await parts.shuffling(parts.second.settle(finish=True))
        assert (parts.second.position, parts.given_up) == (62_001, 0)

    in_parts(staged, does)
    staged.shuffle()
    whole = places((1_000, 10), (2_000, 10), (60_000, 250), (61_000, 200), (62_000, 30))
    assert staged.connection.execute(EVENTS).fetchall() == whole
    assert [connection.execute(EVENTS).fetchall() for connection in old] == [whole[:10], whole[:20]]
    assert ways(staged) == {"adopt": 500}
    for connection in old:
        connection.close()


def test_a_part_that_waits_for_its_turn_has_its_indexes_by_then(staged: Staged):
    """Later rows go to another table, with its own indexes."""

    async def indexed(segment: PartitionSegment) -> None:
        async with asyncio.timeout(PATIENCE):
            while True:
                if not segment.open_rows:
                    return
                await asyncio.sleep(0.01)

    async def does(parts: Parts) -> None:
        await parts.second.append(batch(staged, 60_000, 20), durable=False)
        segment = parts.part._segment
        assert segment is not None
        assert segment.open_rows == 20
        parts.part._taken_at = 0.0
        await parts.second.settle()
        assert segment.open_rows == 0
        await parts.second.append(batch(staged, 61_000, 30), durable=False)
        ending = asyncio.ensure_future(parts.second.settle(finish=True))
        await indexed(segment)
        assert not ending.done()
        await parts.end_first()
        await parts.shuffling(ending)

    in_parts(staged, does)
    staged.shuffle()
    assert staged.connection.execute(EVENTS).fetchall() == places((60_000, 20), (61_000, 30))
    assert ways(staged) == {"adopt": 50}


def test_what_is_no_partition_of_its_own_has_no_indexes(staged: Staged):
    async def does(parts: Parts) -> None:
        await parts.second.append(batch(staged, 60_000, 2), durable=False)
        segment = parts.part._segment
        assert segment is not None
        parts.part._taken_at = 0.0
        await parts.second.settle()
        assert segment.open_rows == 2
        await parts.end_first()
        await parts.shuffling(parts.second.settle(finish=True))

    in_parts(staged, does)
    staged.shuffle()
    assert staged.connection.execute(EVENTS).fetchall() == places((60_000, 2))
    assert ways(staged) == {"move": 2}


def test_each_segment_of_a_part_is_stored_once_it_is_its_turn(staged: Staged):
    async def does(parts: Parts) -> None:
        await parts.end_first()
        for lsn in (60_000, 61_000, 62_000):
            await parts.shuffling(parts.second.append(batch(staged, lsn, 12), durable=False))
            assert (parts.part.holds, parts.second.position) == (False, lsn + 1)

    in_parts(staged, does)
    staged.shuffle()
    assert staged.connection.execute(EVENTS).fetchall() == places((60_000, 12), (61_000, 12), (62_000, 12))
    assert ways(staged) == {"adopt": 36}


def test_no_part_can_reach_the_seqs_of_the_next_one(staged: Staged):
    """However small its changes are, and though what is moved before the next one gets seqs behind it."""
    begins = [0, 0, 5 * 10**9, 5 * 10**9 + 160]
    seqs = log_writer.reserve_part_seqs(staged.connection, staged.source, SETTINGS, begins)
    for (one, seq), (other, following) in pairwise(zip(begins, seqs, strict=True)):
        assert seq is not None
        assert following is not None
        assert following - seq >= (other - one) // 16 + partitions.PARTITION_ROWS


@pytest.mark.parametrize("taken", ["seq", "partition", "nothing"])
def test_what_is_not_next_any_more_is_moved(staged: Staged, taken: str, monkeypatch: pytest.MonkeyPatch):
    """Another session has handed out later seqs or made a partition there, or nothing is being moved."""
    monkeypatch.setattr(runs, "DRAIN_STALLED", 0.1)

    async def does(parts: Parts) -> None:
        await parts.second.append(batch(staged, 60_000, 20), durable=False)
        await parts.first.append(batch(staged, 1_000, 10), durable=False)
        await parts.end_first()
        if taken == "nothing":
            await parts.second.settle(finish=True)
            return
        await asyncio.to_thread(move, parts.shuffler)
        far = parts.part._turn.first_seq + 50_000_000
        if taken == "seq":
            staged.connection.execute("select setval('sequin_events_seq_seq', %s)", [far])
        else:
            staged.connection.execute("create table pipeline.far (like sequin_events including all)")
            attach = f"alter table sequin_events attach partition pipeline.far for values from ({far}) to ({far + 1})"
            staged.connection.execute(attach.encode())
        await parts.shuffling(parts.second.settle(finish=True))

    in_parts(staged, does)
    if taken == "partition":
        staged.connection.execute("alter table sequin_events detach partition pipeline.far; drop table pipeline.far")
    staged.shuffle()
    assert staged.connection.execute(EVENTS).fetchall() == places((1_000, 10), (60_000, 20))
    assert ways(staged) == {"adopt": 10, "move": 20}


def test_the_first_part_of_all_may_be_moved(staged: Staged, monkeypatch: pytest.MonkeyPatch):
    """No run was there before."""
    monkeypatch.setattr(runs, "DRAIN_STALLED", 0.1)

    async def does(parts: Parts) -> None:
        parts.behind = 0
        await parts.second.append(batch(staged, 60_000, 20), durable=False)
        await parts.first.append(batch(staged, 1_000, 1), durable=True)
        await parts.end_first()
        await parts.second.settle(finish=True)

    in_parts(staged, does)
    assert staged.connection.execute("select from pipeline.adoptions").rowcount == 0
    staged.shuffle()
    assert staged.connection.execute(EVENTS).fetchall() == places((1_000, 1), (60_000, 20))
    assert ways(staged) == {"move": 20}


def test_a_part_with_rows_for_the_shuffler_is_read_again_before_its_turn(staged: Staged):
    annotated = (None, None, None, b"{}", None, None)

    async def does(parts: Parts) -> None:
        await parts.second.append(batch(staged, 60_000, 20), durable=False)
        with pytest.raises(ReadAgainError):
            await parts.second.append(batch(staged, 61_000, 1, rest=annotated), durable=False)
        assert (parts.part.holds, parts.second.position, parts.given_up) == (False, BEGINS, 1)
        again = await WorkerClaim.acquire(parts.second._connection, staged.source, 1)
        staging = await LogWriter.open(parts.second._connection, again, SETTINGS)
        for each in (batch(staged, 60_000, 20), batch(staged, 61_000, 1, rest=annotated)):
            await staging.append(each, durable=False)
        await parts.end_first()

    in_parts(staged, does)
    staged.shuffle()
    assert staged.connection.execute(EVENTS).fetchall() == places((60_000, 20), (61_000, 1))
    assert ways(staged) == {}


def test_when_it_is_its_turn_what_comes_before_such_a_row_is_kept(staged: Staged):
    annotated = (None, None, None, b"{}", None, None)

    async def does(parts: Parts) -> None:
        await parts.second.append(batch(staged, 60_000, 8), durable=False)
        await parts.end_first()
        await parts.shuffling(parts.second.append(batch(staged, 61_000, 1, rest=annotated), durable=False))
        assert (parts.second.position, parts.given_up) == (61_001, 0)

    in_parts(staged, does)
    staged.shuffle()
    assert staged.connection.execute(EVENTS).fetchall() == places((60_000, 8), (61_000, 1))
    assert ways(staged) == {"adopt": 8}


def test_who_is_to_stop_before_the_turn_of_his_part_leaves_nothing(staged: Staged):
    tables = r"select count(*) from pg_class where relname ~ '^sequin_events_\d{12}_'"

    async def does(parts: Parts) -> None:
        before = staged.connection.execute(tables).fetchone()
        await parts.second.append(batch(staged, 60_000, 20), durable=False)
        parts.stopping = True
        with pytest.raises(ReadAgainError):
            await parts.second.settle(finish=True)
        assert (parts.part.holds, parts.second.position, parts.given_up) == (False, BEGINS, 0)
        assert staged.connection.execute(tables).fetchone() == before

    in_parts(staged, does)
    staged.shuffle()
    assert staged.connection.execute(EVENTS).fetchall() == []


def test_an_older_worker_of_the_part_can_store_nothing(staged: Staged):
    async def does(parts: Parts) -> None:
        await parts.second.append(batch(staged, 60_000, 20), durable=False)
        await parts.end_first()
        staged.connection.execute(
            "update pipeline.replication_progress set generation = generation + 1 where worker = 1"
        )
        with pytest.raises(FencedError):
            await parts.shuffling(parts.second.settle(finish=True))

    in_parts(staged, does)
    staged.shuffle()
    assert staged.connection.execute(EVENTS).fetchall() == []


def test_what_the_server_refuses_is_read_again_and_staged(staged: Staged):
    async def does(parts: Parts) -> None:
        with pytest.raises(ReadAgainError):
            await parts.second.append(batch(staged, 60_000, 1, record='{"id": "\\u0000"}'), durable=False)
            await parts.end_first()
            await parts.shuffling(parts.second.settle(finish=True))
        assert (parts.part.holds, parts.second.position, parts.given_up) == (False, BEGINS, 1)

    in_parts(staged, does)
