"""Before much of an events table is read at once, the planner knows how much that is."""

from __future__ import annotations

import psycopg
import pytest

from pipeline.log import planner_statistics
from pipeline.log.partitions import PartitionCreator
from pipeline.log.table import DEFAULT, EventsTable
from pipeline.postgres import connections

ROWS = """
    insert into {} (seq, source_database_id, source_table_oid, source_table_schema, source_table_name, record_pk,
        record, action, committed_at)
    select i, gen_random_uuid(), 1, '', '', '', '{{}}', 'insert', now() from generate_series(1, 3000) i"""
LEAVES = "select relid::regclass::text from pg_partition_tree('public.sequin_events') where isleaf"
KNOWN = """
    select c.relname, c.reltuples::int from pg_class c join pg_stat_user_tables s on s.relid = c.oid
    where c.relkind = 'r' and c.relname ~ '^(sequin|legacy)_events' and s.n_tup_ins > 0"""


@pytest.fixture
def dsn(database_dsn: str) -> str:
    with psycopg.connect(database_dsn, autocommit=True) as log:
        PartitionCreator(log, DEFAULT, rows=10_000).reserve(3000)
        log.execute("create table legacy_events (like sequin_events including defaults)")
        leaves = [name for (name,) in log.execute(LEAVES)]
        for name in (*leaves, "legacy_events"):
            log.execute(f"alter table {name} set (autovacuum_enabled = off)".encode())
        for table in ("sequin_events", "legacy_events"):
            log.execute(ROWS.format(table).encode())
        log.execute("select pg_stat_force_next_flush()")
    return database_dsn


def known(connection: psycopg.Connection) -> set[int]:
    """How many rows the planner knows of; of tables that have none it does not say."""
    return {rows for _, rows in connection.execute(KNOWN).fetchall()}


def test_what_is_not_known_is_analyzed_once(dsn: str) -> None:
    events = [DEFAULT, EventsTable.parse("public.legacy_events"), EventsTable.parse("public.gone_events")]
    with connections.connect(dsn, "pipeline database") as log:
        assert known(log) == {-1}
        planner_statistics.refresh(log, events)
        assert known(log) == {3000}
        analyzed = "select sum(analyze_count) from pg_stat_user_tables where relname ~ '_events'"
        before = log.execute(analyzed).fetchone()
        planner_statistics.refresh(log, events)
        assert log.execute(analyzed).fetchone() == before


def test_what_somebody_locks_is_left_as_it_is(dsn: str) -> None:
    with connections.connect(dsn, "pipeline database") as log, psycopg.connect(dsn) as other:
        other.execute("lock table sequin_events, legacy_events in share update exclusive mode")
        planner_statistics.refresh(log, [DEFAULT, EventsTable.parse("public.legacy_events")])
        assert known(log) == {-1}
