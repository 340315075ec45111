"""Transactions that fill many segments: in order over reused segments, and moved while they are still being staged."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import psycopg

from pipeline.log.staging import segments
from tests.fixtures.server import Serving
from tests.fixtures.waiting import eventually

ROWS = 30_000

DISORDER = """
select count(*) from (
    select commit_lsn, commit_idx, (record ->> 'id')::int as id,
        lag(commit_lsn) over w as lsn_before, lag(commit_idx) over w as idx_before
    from sequin_events window w as (order by seq)
) e
where (commit_lsn, commit_idx) <= (lsn_before, idx_before)
"""


def test_several_large_transactions_in_order(serve: Callable[..., Serving], source_dsn: str, database_dsn: str) -> None:
    with psycopg.connect(source_dsn, autocommit=True) as source:
        source.execute("create table t (id int primary key, v text)")
        serve()
        for number in range(4):
            source.execute(
                "insert into t select i, repeat('x', 100) from generate_series(%s::int, %s) i",
                (number * ROWS + 1, (number + 1) * ROWS),
            )
    with psycopg.connect(database_dsn, autocommit=True) as database:
        eventually(arrived(database, 4 * ROWS))
        eventually(all_emptied(database))
        assert database.execute(DISORDER).fetchone() == (0,)
        assert database.execute("select count(distinct seq) from sequin_events").fetchone() == (4 * ROWS,)
        ids = database.execute("select (record ->> 'id')::int from sequin_events order by seq").fetchall()
        assert [row[0] for row in ids] == list(range(1, 4 * ROWS + 1))


def test_segments_of_one_transaction_come_in_the_order_they_were_filled(database_dsn: str) -> None:
    source = uuid.uuid4()
    with psycopg.connect(database_dsn, autocommit=True) as database:
        database.execute(
            "insert into pipeline.sources (id, system_identifier, database_name, slot) values (%s, '1', 'd', 's')",
            (source,),
        )
        database.execute(
            "insert into pipeline.replication_progress (source_id, epoch, position) values (%s, 0, 0)", (source,)
        )
        for first_ordinal in (20, 0, 10):  # a reused segment may have any id
            database.execute(
                "insert into pipeline.segments"
                " (source_id, worker, state, first_lsn, last_lsn, first_ordinal, row_count)"
                " values (%s, 0, 'full', 7, 7, %s, 10)",
                (source, first_ordinal),
            )
        found = segments.read_pending(database, source)
    assert [segment.first_ordinal for segment in found] == [0, 10, 20]


def arrived(database: psycopg.Connection[tuple[object, ...]], rows: int) -> Callable[[], None]:
    def check() -> None:
        assert database.execute("select count(*) from sequin_events").fetchone() == (rows,)

    return check


def all_emptied(database: psycopg.Connection[tuple[object, ...]]) -> Callable[[], None]:
    def check() -> None:
        query = "select count(*) from pipeline.segments where state in ('full', 'drained')"
        assert database.execute(query).fetchone() == (0,)

    return check
