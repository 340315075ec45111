"""The registry of readers: a new kind is one more branch of the view."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from pipeline.cli.render import retention as retention_report
from pipeline.log.readers import ReaderRegistry
from pipeline.operate import metrics
from pipeline.operate.lag import stages
from pipeline.operate.lag.facts import AtSource, SourceReading, StoredPositions
from pipeline.operate.lag.model import LagReport
from pipeline.operate.status import PipelineStatus
from pipeline.postgres import queries
from tests.fixtures.aging_log import KEEP, PARTITION, AgingLog, aging_log
from tests.fixtures.small_log import SOURCE

OLD = 1.1 * KEEP
REMEDY = "tell the telegraph to hurry"
TELEGRAPH = """
    union all select 'wire', 'telegraph', 'public.sequin_events', null::uuid, 150::bigint, 120::bigint, false, false,
        'tell the telegraph to hurry'
"""
SMALL = 200
"""Rows that a look may read which does not grow with the log."""


@pytest.fixture
def aged_log(database_dsn: str) -> Iterator[AgingLog]:
    with aging_log(database_dsn) as made:
        made.add(3 * PARTITION, OLD)
        yield made


@pytest.fixture
def telegraph(aged_log: AgingLog) -> None:
    row = aged_log.connection.execute("select pg_get_viewdef('pipeline.readers'::regclass)").fetchone()
    assert row is not None
    aged_log.connection.execute(f"create or replace view pipeline.readers as {row[0].rstrip(';')} {TELEGRAPH}")


def lag_of(aged_log: AgingLog) -> LagReport:
    look = SourceReading(AtSource(300, datetime.now(UTC), sender=1, sent=300, received=300, staged=300), None, [], {})
    moved = StoredPositions(SOURCE, 0, staged=300, complete=300, watermark=300)
    return stages.measure(aged_log.config, aged_log.connection, look, moved, [], None)


@pytest.mark.usefixtures("telegraph")
def test_a_new_kind_of_reader_holds_retention_back_and_is_shown(
    aged_log: AgingLog, capsys: pytest.CaptureFixture[str]
) -> None:
    assert aged_log.drop().below == 101
    found = aged_log.retention_status()
    [holder] = found.held_by
    assert (holder.kind, holder.name, holder.position, holder.remedy) == ("wire", "telegraph", 120, REMEDY)
    lag = lag_of(aged_log)
    consumed = lag.stage("consumed")
    assert consumed is not None and (consumed.reader, consumed.lsn) == ("telegraph", 151)
    status = PipelineStatus(retention=found, lag=lag)
    shown = json.dumps(status.to_json(), default=str)
    assert '"name": "telegraph"' in shown and '"reader": "telegraph"' in shown and REMEDY in shown
    exposed = metrics.render(status).decode()
    assert 'pipeline_retention_held{kind="wire",name="telegraph"} 1.0' in exposed
    assert 'pipeline_stage_lag_bytes{stage="consumed"} 149.0' in exposed
    retention_report.show_dry_run(found)
    assert f'wire "telegraph" is at 120; {REMEDY}' in " ".join(capsys.readouterr().out.split())


def test_what_each_kind_has_read_and_needs(aged_log: AgingLog) -> None:
    aged_log.connection.execute("""
        insert into pipeline.consumers (name, kind, position, actions, state) values
            ('cursor', 'cursor', 10, '{}', 'active'), ('idle', 'cursor', 10, '{delete}', 'paused'),
            ('queue', 'records', 10, '{}', 'active');
        insert into pipeline.consumer_progress select id, 200 from pipeline.consumers where name = 'queue';
        insert into public.consumer_records (consumer_id, source_table_oid, record_pk, seq, queued_seq, action)
            select id, 1, '1', 150, 140, 'insert' from pipeline.consumers where name = 'queue'
    """)
    aged_log.connection.execute(
        "insert into pipeline.lakes (id, directory, events_table) values (%s, '/lake', 'public.sequin_events')",
        [uuid.UUID(int=1)],
    )
    readers = ReaderRegistry(aged_log.connection, aged_log.table)
    assert {each.name: each.needs_after for each in readers.needing()} == {
        "cursor": 10,
        "idle": 10,
        "queue": 149,
        "/lake": 0,
    }
    assert {each.name: each.seqs for each in readers.lagging()} == {"cursor": 290, "queue": 161, "/lake": 300}
    aged_log.connection.execute("update pipeline.consumers set reader = 'me' where name = 'cursor'")
    found = aged_log.connection.execute("select name, active, paused from pipeline.readers order by name").fetchall()
    assert found == [("/lake", False, False), ("cursor", True, False), ("idle", False, True), ("queue", None, False)]


def test_a_look_reads_by_index_however_long_the_log_is(aged_log: AgingLog) -> None:
    aged_log.add(20_000)
    aged_log.connection.execute("""
        insert into pipeline.consumers (name, kind, position)
            values ('behind', 'cursor', 10), ('head', 'cursor', 20300), ('queue', 'records', 20300);
        insert into pipeline.lakes (id, directory, events_table, released_at)
            values ('00000000-0000-0000-0000-000000000001', '/lake', 'public.sequin_events', now());
        insert into pipeline.exports (lake_id, after_seq, upto_seq, state, holder)
            select '00000000-0000-0000-0000-000000000001', n - 1, n, 'committed', 'x' from generate_series(1, 5000) n;
        analyze
    """)
    for look in ("known_readers", "needing_readers", "lagging_readers"):
        query = f"explain (analyze, format json) {queries.statement('log', look)}"
        query = query.replace("{events}", "pipeline.events")
        row = aged_log.connection.execute(query.encode(), {"table": str(aged_log.table)}).fetchone()
        assert row is not None
        read = [
            (
                node["Relation Name"],
                node["Actual Loops"] * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)),
            )
            for node in nodes(row[0][0]["Plan"])
            if "Relation Name" in node
        ]
        assert sum(rows for name, rows in read if not name.startswith("pg_")) < SMALL, (look, read)


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)
