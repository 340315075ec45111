"""A log of many adopted partitions is read, checked and dropped as any other."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest
from adbc_driver_postgresql import dbapi

from lake.changes import plan
from pipeline.config import settings
from pipeline.log import partitions, shapes
from pipeline.log.page import EventPageRequest
from pipeline.log.table import DEFAULT
from pipeline.log.writing.log_writer import LogWriter
from pipeline.log.writing.segment_sizes import SegmentSizes
from pipeline.operate import retention
from pipeline.operate.verify import verify
from pipeline.postgres import migrations
from pipeline.postgres.embedded import EmbeddedServer
from pyspark_sequin_events import catalog
from tests.fixtures.adopting import adopt, batch, writing
from tests.fixtures.followers import primary_and_standby, run
from tests.fixtures.postgres import Cluster
from tests.fixtures.staged import Staged, Table, insert, staging_of
from tests.fixtures.waiting import eventually

FEW, MANY, VERY_MANY = 6, 100, 1_000
DROPPED = 60
"""Of very many: each costs plans over all that are left."""
ROWS = 300
"""Of a partition: with less, scanning it is the better plan."""
HISTORY = """
    select * from public.sequin_events
    where source_database_id = $1 and source_table_oid = $2 and record_pk = $3 order by seq"""
NEXT = "select * from public.sequin_events where seq > $1 order by seq limit 100"


@pytest.fixture(
    scope="module",
    params=[FEW, *[pytest.param(n, marks=[pytest.mark.long, pytest.mark.timeout(900)]) for n in (MANY, VERY_MANY)]],
)
def staged(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[Staged]:
    """Two runs, with rows that were moved before, between and behind them; of very many partitions most are made at
    once: each by itself would take minutes.
    """
    filled = request.param if request.param <= MANY else FEW
    with staging_of(cluster, Table("orders")) as made:
        made.moved(insert("orders", id="1"))
        fill(made, 1_000, filled // 2)
        for first in range(filled, request.param, CHUNK):
            some = min(CHUNK, request.param - first)
            made.connection.execute(MORE_OF_THEM.format(partitions=some, rows=ROWS).encode())
        made._lsn = 5_000_000
        made.moved(insert("orders", id="1"))
        fill(made, 10_000_000, filled - filled // 2)
        made._lsn = 50_000_000
        made.moved(insert("orders", id="1"))
        yield made


MORE_OF_THEM = """
    do $$ declare
        first_seq bigint;
        lsn bigint;
        rows constant int := {rows};
        added int;
    begin
        select last_seq + 1, commit_lsn into first_seq, lsn from pipeline.shuffle_progress;
        for number in 1..{partitions} loop
            lsn := lsn + 1000;
            execute format($sql$create table pipeline.%1$I (like sequin_events including all);
                insert into pipeline.%1$I select r.* from sequin_events e, generate_series(0, %2$s - 1) i, lateral
                    jsonb_populate_record(e, jsonb_build_object(
                        'seq', %3$s + i, 'commit_lsn', %4$s, 'commit_idx', i, 'record_pk', %4$s || '.' || i)) r
                where e.seq = %3$s - 1;
                analyze pipeline.%1$I;
                alter table sequin_events attach partition pipeline.%1$I for values from (%3$s) to (%3$s + %2$s)$sql$,
                'sequin_events_' || lpad(first_seq::text, 12, '0') || '_1', rows, first_seq, lsn);
            first_seq := first_seq + rows;
        end loop;
        perform setval('sequin_events_seq_seq', first_seq - 1);
        added := {partitions} * rows;
        update pipeline.replication_progress set position = lsn + 1, commit_lsn = lsn, changes = changes + added;
        update pipeline.events_tables set last_seq = first_seq - 1, events = events + added;
        update pipeline.shuffle_progress set last_seq = first_seq - 1, commit_lsn = lsn, events = events + added;
    end $$"""
CHUNK = 100
"""Of these in one transaction: its locks must fit."""


class Fixed(SegmentSizes):
    """All of one size, however large the log is."""

    def full(self, events: int) -> int:
        return ROWS


def fill(staged: Staged, first_lsn: int, segments: int) -> None:
    async def does(writer: LogWriter) -> None:
        for number in range(segments):
            await writer.append(batch(staged, first_lsn + 1_000 * number, ROWS), durable=False)
        await writer.settle(finish=True)

    writing(staged, does, sizes=Fixed(256 * ROWS))
    staged.shuffle()


def count(staged: Staged) -> int:
    row = staged.connection.execute("select count(*) from sequin_events").fetchone()
    assert row is not None
    return int(row[0])


def ran(dsn: str, mode: str, query: str, types: str, *values: object) -> list[dict[str, Any]]:
    """The nodes of the prepared query's plan that ran."""
    with psycopg.connect(dsn, autocommit=True, options=f"-c plan_cache_mode={mode}") as connection:
        return executed(connection, query, types, *values)


def executed(connection: psycopg.Connection[Any], query: str, types: str, *values: object) -> list[dict[str, Any]]:
    connection.execute(f"prepare query ({types}) as {query}".encode())
    literals = ", ".join(psycopg.sql.Literal(value).as_string(connection) for value in values)
    row = connection.execute(f"explain (analyze, format json) execute query ({literals})".encode()).fetchone()
    assert row is not None
    return [node for node in nodes(row[0][0]["Plan"]) if node["Actual Loops"]]


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
def test_pages_and_row_histories_are_read_without_sorts_and_full_scans(staged: Staged, mode: str):
    attached = partitions.attached(staged.connection, DEFAULT)
    adopted = [two for one, two in pairwise(attached) if one.upper - one.lower == two.upper - two.lower == ROWS]
    for each in adopted[:: max(1, len(adopted) // 4)]:
        found = ran(staged.dsn, mode, NEXT, "bigint", each.lower - 5)
        scans = [node for node in found if "Relation Name" in node and node["Actual Rows"]]
        assert ({node["Node Type"] for node in scans}, len(scans)) == ({"Index Scan"}, 2)
        assert not [node for node in found if "Sort" in node["Node Type"]]
    oid = staged.connection.execute("select source_table_oid from sequin_events limit 1").fetchone()
    assert oid is not None
    found = ran(staged.dsn, mode, HISTORY, "uuid, bigint, text", staged.source, oid[0], "1")
    assert found[0]["Actual Rows"] == 3
    assert not [node for node in found if "Sort" in node["Node Type"]]
    assert max(node.get("Rows Removed by Filter", 0) for node in found) <= 20, "those of a page are read as they are"


def test_everything_is_read_once_and_in_order_over_the_gaps(staged: Staged):
    """By pages, as over HTTP, gRPC and by consumers; as Spark's parts; and as an export plans it."""
    after, found = 0, 0
    while (
        not (page := shapes.JSON.read(staged.connection, EventPageRequest(after, 10_000, 10**8))).at_head
        or page.entries
    ):
        seqs = [entry.seq for entry in page.entries]
        assert all(one < two for one, two in pairwise([after, *seqs]))
        found, after = found + len(seqs), page.upto
    assert found == count(staged)
    with closing(dbapi.connect(staged.dsn, autocommit=True)) as connection:
        head = catalog.head(connection, str(DEFAULT))
        parts = list(catalog.ranges(connection, str(DEFAULT), (0, head), 5_000, 10_000))
        planned = plan.plan_parts(connection, staged.dsn, str(DEFAULT), 0, head)
    assert parts[0][0] == 0
    assert parts[-1][1] == head
    assert all(one[1] == two[0] for one, two in pairwise(parts))
    assert len(parts) <= found // 5_000 + 4, "what has no events makes no part"
    assert sum(part.rows for part in planned) == found


def test_verify_finds_nothing(staged: Staged):
    """Also while a table waits."""
    adopt(staged, batch(staged, 55_000_000, 200))
    for shuffles in (False, True):
        if shuffles:
            staged.shuffle()
        checked = verify.run(settings.load(database_dsn=staged.dsn), 1, 5_000, lambda *_: None)
        assert {check.name: check.faults for check in checked.checks if check.broken} == {}
        assert checked.rows == count(staged)


@pytest.mark.long
def test_a_dump_is_restored(staged: Staged, cluster: Cluster, tmp_path: Path):
    assert cluster.server is not None
    tools, dump = cluster.server.bin_dir, tmp_path / "dump"
    subprocess.run([tools / "pg_dump", "-Fc", "-f", dump, staged.dsn], check=True, capture_output=True)
    state = """
        select array(select (seq, commit_lsn, commit_idx, record)::text from sequin_events order by seq),
            array(select indexdef from pg_indexes where schemaname in ('public', 'pipeline') order by 1),
            pg_sequence_last_value('sequin_events_seq_seq')"""
    with cluster.database("restored") as restored:
        subprocess.run([tools / "pg_restore", "-d", restored, dump], check=True, capture_output=True)
        with psycopg.connect(restored) as connection:
            again = connection.execute(state).fetchone()
    assert again == staged.connection.execute(state).fetchone()


def test_retention_drops_them(staged: Staged):
    """The last test of these: little is left."""
    there = partitions.attached(staged.connection, DEFAULT)
    found = staged.connection.execute("select min(seq) from sequin_events where commit_lsn >= 50000000").fetchone()
    assert found is not None
    keep = min(found[0], there[min(DROPPED, len(there) - 1)].lower)
    old = "update sequin_events set inserted_at = now() - interval '1 day' where seq < %s"
    staged.connection.execute(old, [keep])
    config = settings.load(database_dsn=staged.dsn, retention="1h", export_schedule="off")
    young = staged.connection.execute("select count(*) from sequin_events where seq >= %s", [keep]).fetchone()
    before = len(there)
    while (dropped := retention.run(config, lambda: False)).partitions:
        assert not dropped.waiting
    left = partitions.attached(staged.connection, DEFAULT)
    assert young is not None
    assert before - len(left) >= FEW
    assert (count(staged),) == young
    adopt(staged, batch(staged, 60_000_000, 200))
    staged.shuffle()
    assert count(staged) == young[0] + 200


@pytest.mark.long
def test_a_snapshot_of_a_standby_has_a_prefix_of_the_log(server_directory: Path):
    """Commits come there in their order, so what holds at the primary holds at it."""
    primary, standby = primary_and_standby(server_directory)
    migrations.upgrade(primary.dsn("postgres"))
    run(standby.dsn("postgres"), "alter system set hot_standby_feedback = on")  # or vacuum may end old snapshots
    run(standby.dsn("postgres"), "select pg_reload_conf()")
    old: list[psycopg.Connection[Any]] = []
    with closing(Staged(primary.dsn("postgres"), (Table("orders"),))) as staged:
        staged.moved(insert("orders", id="1"))

        async def does(writer: LogWriter) -> None:
            for lsn in (1_000, 2_000, 3_000):
                await writer.append(batch(staged, lsn, 10), durable=False)
                replayed(staged, standby)
                old.append(psycopg.connect(standby.dsn("postgres")))
                old[-1].isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                old[-1].execute("select pg_current_snapshot()")
            await writer.settle(finish=True)

        writing(staged, does)
        staged.shuffle()
        replayed(staged, standby)
        query = "select commit_lsn from sequin_events order by seq"
        seen = [connection.execute(query).fetchall() for connection in old]
        assert seen == [
            [(100,)] + [(lsn,) for lsn in (1_000, 2_000, 3_000)[:number] for _ in range(10)] for number in (1, 2, 3)
        ]
        for connection in old:
            connection.close()


def replayed(staged: Staged, standby: EmbeddedServer) -> None:
    position = staged.connection.execute("select pg_current_wal_lsn()").fetchone()
    with psycopg.connect(standby.dsn("postgres"), autocommit=True) as connection:
        query = "select pg_last_wal_replay_lsn() >= %s"
        eventually(lambda: connection.execute(query, position).fetchone() == (True,))
