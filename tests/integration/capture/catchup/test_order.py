"""The shuffler drains no worker before whose part something is missing, whatever that one has staged already."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from pipeline.capture.catchup import plan_reader, store
from pipeline.log.staging.segments import FULL_AT
from pipeline.log.staging.worker_claim import connect_staging
from tests.fixtures.shuffling import move
from tests.fixtures.staged import Staged, Table, insert

END = 250
"""Of worker 0's part: two transactions, at 100 and 200."""


@pytest.fixture
def staged(database_dsn: str) -> Iterator[Staged]:
    """Worker 0 has staged one transaction of its two, worker 1 the five after them."""
    stage = Staged(database_dsn, [Table("item")])
    stage.commit(insert("item", id="0"))
    split(stage)
    yield stage
    stage.close()


def split(stage: Staged) -> None:
    """What comes next is of worker 1, in full segments."""
    values = {"source": stage.source, "end": END}
    stage.connection.execute(
        "insert into pipeline.replication_progress (source_id, worker, epoch, position, commit_lsn, generation)"
        " values (%(source)s, 1, 0, %(end)s, 0, 7)",
        values,
    )
    stage.connection.execute(
        "insert into pipeline.catchup_parts (source_id, worker, epoch, from_lsn) values (%(source)s, 1, 0, %(end)s)",
        values,
    )
    stage.connection.execute("update pipeline.replication_progress set position = 101 where worker = 0")
    stage._lsn = END
    stage.work_as(1)
    for number in range(5):
        stage.commit(*(insert("item", id=f"{number + 2}.{row}") for row in range(FULL_AT)))


def log(stage: Staged) -> list[str]:
    rows = stage.connection.execute("select record ->> 'id' from public.sequin_events order by seq").fetchall()
    return [row[0] for row in rows]


def complete(stage: Staged) -> None:
    """Worker 0 stages its second transaction, in the segment that it is filling, and is done."""
    values = {"source": stage.source}
    run = stage.connection.execute
    row = run("select id from pipeline.segments where worker = 0").fetchone()
    assert row is not None
    with stage.connection.transaction():
        run(
            f"insert into pipeline.wal_events_{row[0]:05d} (commit_lsn, commit_idx, ordinal, relation_id, xid,"
            " committed_at, action, record_pk, record)"
            f" select 200, 0, 1, relation_id, 1, now(), 'insert', '1', '{{\"id\": \"1\"}}'"
            f" from pipeline.wal_events_{row[0]:05d} limit 1"
        )
        run(
            "update pipeline.segments set last_lsn = 200, row_count = 2 where worker = 0 and source_id = %(source)s",
            values,
        )
        run(
            "update pipeline.replication_progress set position = 250, commit_lsn = 200"
            " where worker = 0 and source_id = %(source)s",
            values,
        )


def test_a_later_part_waits_for_what_is_missing_before_it(staged: Staged):
    staged.shuffle()
    assert log(staged) == ["0"], "what worker 1 has staged is not reached"
    assert [part.reached for part in plan_reader.read_plan(staged.connection, staged.source)] == [True, False]
    complete(staged)
    staged.shuffle()
    moved = log(staged)
    assert moved[:3] == ["0", "1", "2.0"]
    assert len(moved) == 2 + 5 * FULL_AT
    assert moved == sorted(moved, key=lambda name: [int(number) for number in name.split(".")])


def test_a_part_reached_while_the_shuffler_reads_is_not_moved_too_early(staged: Staged):
    shuffler = staged.shuffler()
    look = shuffler._read_state
    seen = look()

    def late() -> object:
        """What was so before worker 0 was done."""
        shuffler._read_state = look  # type: ignore[method-assign]
        complete(staged)
        return seen

    shuffler._read_state = late  # type: ignore[method-assign, assignment]
    move(shuffler)
    assert log(staged)[:3] == ["0", "1", "2.0"]


@pytest.mark.parametrize("whole", [False, True])
def test_a_plan_that_nobody_can_finish_leaves_what_has_no_gap_before_it(staged: Staged, *, whole: bool):
    if whole:
        complete(staged)

    async def abandon() -> None:
        async with await connect_staging(staged.dsn) as connection:
            await store.abandon_plan(connection, staged.source, plan_reader.read_plan(staged.connection, staged.source))

    asyncio.run(abandon())
    staged.shuffle()
    assert plan_reader.read_plan(staged.connection, staged.source) == []
    assert len(log(staged)) == (2 + 5 * FULL_AT if whole else 1)
    left = staged.connection.execute("select worker, position from pipeline.replication_progress").fetchall()
    assert left == [(0, staged.lsn if whole else 101)]
