"""What an export reads of the log for a table with few changes, beside one that has nearly all of them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import psycopg
import pytest

from lake.changes import plan
from pyspark_sequin_events import catalog
from pyspark_sequin_events.query import in_range
from tests.fixtures.small_log import add_inserts, add_table

HOT, MOST_BLOCKS = 30_000, 63


@pytest.fixture
def dsn(database_dsn: str) -> Iterator[str]:
    """Fifty changes of `calm` in ten places among those of `hot`."""
    with psycopg.connect(database_dsn, autocommit=True) as log:
        for name, oid in (("hot", 16384), ("calm", 16385)):
            add_table(log, name, oid)
        for _ in range(10):
            add_inserts(log, HOT // 10, "hot", 16384)
            add_inserts(log, 5, "calm", 16385)
        log.execute("vacuum analyze public.sequin_events")
        yield database_dsn


def test_a_table_with_few_changes_reads_few_blocks(dsn: str) -> None:
    with catalog.connect(dsn) as connection:
        head = catalog.head(connection, "public.sequin_events")
        [calm, hot] = plan.plan_parts(connection, dsn, "public.sequin_events", 0, head)
    assert (calm.rows, hot.rows) == (50, HOT)
    with psycopg.connect(dsn) as log:
        query = in_range(calm.read.query, calm.read.after, calm.read.upto)
        row = log.execute(f"explain (analyze, buffers, format json) {query}".encode()).fetchone()
    assert row is not None
    found = json.loads(row[0])[0]["Plan"] if isinstance(row[0], str) else row[0][0]["Plan"]
    assert found["Shared Hit Blocks"] + found["Shared Read Blocks"] <= MOST_BLOCKS, found
