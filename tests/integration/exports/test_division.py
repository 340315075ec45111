"""How an export is divided: by what the log has, however its seqs lie, over few connections."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from adbc_driver_postgresql import dbapi

from lake.changes import exporter, plan
from lake.storage.new_file import FileTarget
from pyspark_sequin_events import catalog, reading
from tests.fixtures.small_log import add_inserts, add_table

EVENTS = "public.sequin_events"
ROWS, GAP = 4_000, 90_000_000


@pytest.fixture
def log(database_dsn: str) -> Iterator[psycopg.Connection]:
    """Three tables; what `hot` has is in three places, far apart, with all of `calm` in the first."""
    with psycopg.connect(database_dsn, autocommit=True) as log:
        for name, oid in (("hot", 16384), ("calm", 16385), ("warm", 16386)):
            add_table(log, name, oid)
        add_inserts(log, 10, "calm", 16385)
        add_inserts(log, ROWS * 7 // 10, "hot", 16384)
        leap(log, 1_000_000)
        add_inserts(log, ROWS * 2 // 10, "hot", 16384)
        leap(log, GAP)
        add_inserts(log, ROWS // 10, "hot", 16384)
        add_inserts(log, 1_000, "warm", 16386)
        yield log


def leap(log: psycopg.Connection, seqs: int) -> None:
    log.execute(
        "select setval('public.sequin_events_seq_seq', (select max(seq) from public.sequin_events) + %s)", [seqs]
    )


def divided(log: psycopg.Connection, tasks: int, rows_per_file: int = 500_000) -> dict[str, list[int]]:
    """The rows of each piece, by table, the pieces in the order in which tasks begin."""
    dsn = log.info.dsn
    with catalog.connect(dsn) as connection:
        parts = plan.plan_parts(connection, dsn, EVENTS, 0, catalog.head(connection, EVENTS))
        pieces = exporter.divide(connection, parts, FileTarget(Path()), rows_per_file=rows_per_file, tasks=tasks)
    found: dict[str, list[int]] = {}
    for piece in pieces:
        rows = sum(batch.num_rows for batch in reading.read_batches(piece.read))
        found.setdefault(piece.dataset, []).append(rows)
    return found


def test_pieces_are_equal_in_rows_and_as_many_as_there_are_cores(
    log: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporter, "FEW_ROWS", 100)
    assert divided(log, 5) == {"public.hot": [1_000] * 4, "public.warm": [1_000], "public.calm": [10]}
    assert divided(log, 1)["public.hot"] == [ROWS]
    assert divided(log, 1, rows_per_file=300)["public.hot"] == [286] * 13 + [282]


def test_few_rows_are_one_piece(log: psycopg.Connection) -> None:
    assert divided(log, 64) == {"public.hot": [ROWS], "public.warm": [1_000], "public.calm": [10]}


def test_where_there_are_no_events_there_is_no_range(log: psycopg.Connection) -> None:
    with catalog.connect(log.info.dsn) as connection:
        head = catalog.head(connection, EVENTS)
        assert head > GAP
        found = list(catalog.ranges(connection, EVENTS, (0, head), 1_000, 1_000_000))
        assert [after for after, _ in found] == [0, *(upto for _, upto in found[:-1])]
        assert found[-1][1] == head
        held = "select count(*) from public.sequin_events where seq > %s and seq <= %s"
        rows = [count for bounds in found for (count,) in log.execute(held, bounds).fetchall()]
        assert rows == [1_000, 1_000, 810, 800, 1_000, 400]
        assert list(catalog.ranges(connection, EVENTS, (head, head), 1_000, 10)) == []
        assert list(catalog.ranges(connection, EVENTS, (head, head + 5_000), 1_000, 10)) == [(head, head + 5_000)]


def test_a_piece_is_read_over_one_connection(log: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one with values that have to be read again, in the middle."""
    log.execute(
        "update pipeline.relations set columns = columns || jsonb_build_object('name', 'day', 'type_oid', 1082,"
        " 'type_modifier', -1, 'type_name', 'date', 'base_type_oid', 1082, 'key', false) where table_name = 'hot'"
    )
    log.execute(
        "update public.sequin_events set record = record || jsonb_build_object('day', case when seq in (20, 30)"
        " then 'infinity' else '2026-11-26' end, 'customer', repeat(md5(seq::text), 400))"
        " where source_table_name = 'hot'"
    )
    opened = [0, 0]
    connect = catalog.connect

    @contextmanager
    def counted(dsn: str) -> Iterator[dbapi.Connection]:
        opened[0] += 1
        opened[1] = max(opened)
        with connect(dsn) as connection:
            try:
                yield connection
            finally:
                opened[0] -= 1

    monkeypatch.setattr(catalog, "connect", counted)
    dsn = log.info.dsn
    with connect(dsn) as connection:
        parts = plan.plan_parts(connection, dsn, EVENTS, 0, catalog.head(connection, EVENTS))
    [hot] = [part for part in parts if part.dataset == "public.hot"]
    batches = list(reading.read_batches(hot.read))
    assert len(batches) > 2
    seqs = [seq for batch in batches for seq in batch.column("seq").to_pylist()]
    assert seqs == [row[0] for row in log.execute(f"select seq from ({hot.read.query}) held order by seq").fetchall()]
    exact = [text for batch in batches for text in batch.column("exact").to_pylist() if text]
    assert exact == ['{"day": "infinity"}'] * 2
    assert opened == [0, 1]
