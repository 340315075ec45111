"""The two queries everybody runs stay cheap however many partitions there are."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pipeline.log import shapes
from pipeline.log.page import DEFAULT_LOG, EVERYTHING, SPAN, EventFilter, EventPageRequest, values
from pipeline.log.partitions import PartitionCreator
from pipeline.log.table import DEFAULT
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

PARTITIONS, ROWS = 20, 1500
TABLES, KEYS = 3, 50
SOURCE = uuid.UUID(int=1)
NEXT_EVENTS = "select * from public.sequin_events where seq > $1 order by seq limit 1000"
HISTORY = """
    select * from public.sequin_events
    where source_database_id = $1 and source_table_oid = $2 and record_pk = $3 order by seq
"""
RELATION = """
    with known as (
        insert into pipeline.sources (id, system_identifier, database_name, slot) values (%s, '1', 'shop', 's')
        returning id
    )
    insert into pipeline.relations (source_id, epoch, relation_oid, relation_schema, relation_name, table_oid,
        table_schema, table_name, replica_identity, columns, key_columns, from_lsn)
    select id, 0, 1, 'public', 't', 1, 'public', 't', 'd', '[]', '{id}', 1 from known
"""
FILL = """
    insert into public.sequin_events (source_database_id, commit_lsn, commit_idx, source_table_oid,
        source_table_schema, source_table_name, record_pk, record, action, committed_at)
    select %s, n, 0, n %% %s, 'public', 't', n %% %s, '{}', 'insert', now() from generate_series(1, %s) n
"""


@pytest.fixture
def log(database_dsn: str) -> Iterator[Connection]:
    """An events table of 20 full partitions with statistics as autovacuum makes them: not for the empty ones ahead."""
    with psycopg.connect(database_dsn, autocommit=True) as connection:
        PartitionCreator(connection, DEFAULT, rows=ROWS).reserve(PARTITIONS * ROWS)
        connection.execute(FILL, [SOURCE, TABLES, KEYS, PARTITIONS * ROWS])
        filled = connection.execute("select distinct tableoid::regclass::text from public.sequin_events").fetchall()
        assert len(filled) == PARTITIONS
        connection.execute("analyze " + ", ".join(name for (name,) in filled))
        yield connection


@pytest.fixture(params=["force_custom_plan", "force_generic_plan"])
def plan_cache_mode(request: pytest.FixtureRequest, log: Connection) -> None:
    """A prepared statement's plan is made with its parameters at first and without them later."""
    log.execute(f"set plan_cache_mode = {request.param}")


def executed(log: Connection, query: str, types: str, *values: object) -> list[dict[str, Any]]:
    """The nodes of the prepared query's plan that ran; `never executed` ones are left out."""
    log.execute("deallocate all")
    log.execute(f"prepare query ({types}) as {query}")
    literals = ", ".join(psycopg.sql.Literal(value).as_string(log) for value in values)
    row = log.execute(f"explain (analyze, format json) execute query ({literals})").fetchone()
    assert row is not None
    return [node for node in nodes(row[0][0]["Plan"]) if node["Actual Loops"]]


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)


def scans(ran: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [node for node in ran if "Relation Name" in node]


@pytest.mark.usefixtures("plan_cache_mode")
def test_reading_a_thousand_events_scans_two_partitions_without_a_sort(log: Connection):
    for last in (0, ROWS - 1, 10 * ROWS - 500, PARTITIONS * ROWS - 1500):
        ran = executed(log, NEXT_EVENTS, "bigint", last)
        assert ran[0]["Actual Rows"] == 1000
        assert 1 <= len(scans(ran)) <= 2, (last, ran)
        assert {scan["Node Type"] for scan in scans(ran)} == {"Index Scan"}, (last, ran)
        assert not [node for node in ran if "Sort" in node["Node Type"]], (last, ran)


@pytest.mark.usefixtures("plan_cache_mode")
def test_a_reader_at_the_head_touches_only_what_is_new(log: Connection):
    """The planner may sort here: without statistics it guesses rows in the empty partition ahead. It gets none."""
    ran = executed(log, NEXT_EVENTS, "bigint", PARTITIONS * ROWS - 10)
    assert len(scans(ran)) <= 2
    assert [(scan["Node Type"], scan["Actual Rows"]) for scan in scans(ran) if scan["Actual Rows"]] == [
        ("Index Scan", 10)
    ]
    assert not any(scan.get("Rows Removed by Filter") for scan in scans(ran))


@pytest.mark.usefixtures("plan_cache_mode")
def test_the_history_of_one_key_is_an_index_scan(log: Connection):
    ran = executed(log, HISTORY, "uuid, bigint, text", SOURCE, 1, "7")
    assert ran[0]["Actual Rows"] == PARTITIONS * ROWS // (TABLES * KEYS)
    assert {scan["Node Type"] for scan in scans(ran)} == {"Index Scan"}
    assert all("record_pk" in scan["Index Cond"] and "Filter" not in scan for scan in scans(ran)), scans(ran)
    assert not [node for node in ran if "Sort" in node["Node Type"]]


@pytest.mark.usefixtures("plan_cache_mode")
@pytest.mark.parametrize(
    "wanted", [EVERYTHING, EventFilter(tables=("public.t",)), EventFilter(("none.*",), ("delete",))]
)
def test_a_page_for_a_client_reads_in_order_and_no_more_than_a_span(log: Connection, wanted: EventFilter):
    seven = {"after": "bigint", "span": "bigint", "tables": "text[]", "within": "text[]", "actions": "text[]"}
    types = seven | {"rows": "int", "bytes": "bigint"}
    text = shapes.JSON.statement.decode()
    for place, name in enumerate(types, 1):
        text = text.replace(f"%({name})s", f"${place}")
    for after in (0, ROWS - 10, 10 * ROWS - 500, PARTITIONS * ROWS - 10):
        asked = values(EventPageRequest(after, 100, 1_000_000, wanted))
        ran = executed(log, text, ", ".join(types.values()), *(asked[name] for name in types))
        read = [scan for scan in scans(ran) if scan["Actual Rows"] or scan.get("Rows Removed by Filter")]
        assert {scan["Node Type"] for scan in read} <= {"Index Scan", "Index Only Scan"}, (after, ran)
        if wanted.tables != ("none.*",):
            assert sum(scan["Actual Rows"] for scan in read) <= 100 + 4, (
                "what the page has, where it begins and may end"
            )
        assert not [node for node in ran if "Sort" in node["Node Type"] and node["Actual Rows"] > 100], (after, ran)


def prepared(log: Connection, name: str, types: dict[str, str], asked: dict[str, Any]) -> list[dict[str, Any]]:
    """The nodes that ran of a statement of the log, prepared with parameters of these types."""
    text = queries.composed(statement("log", name), events=DEFAULT_LOG).decode()
    for place, each in enumerate(types, 1):
        text = text.replace(f"%({each})s", f"${place}")
    return executed(log, text, ", ".join(types.values()), *(asked[each] for each in types))


@pytest.mark.usefixtures("plan_cache_mode")
@pytest.mark.parametrize("tables", [[], ["public.t"], ["none.t"]])
def test_the_newest_events_are_read_by_index(log: Connection, tables: list[str]):
    types = {"before": "bigint", "span": "bigint", "tables": "text[]", "actions": "text[]", "rows": "int"}
    for before in (PARTITIONS * ROWS + 1, 10 * ROWS, 20):
        asked = {"before": before, "span": SPAN, "tables": tables, "actions": [], "rows": 50, "bytes": 1_000_000}
        ran = prepared(log, "page_before", types | {"bytes": "bigint"}, asked)
        assert {scan["Node Type"] for scan in scans(ran)} <= {"Index Scan", "Index Only Scan"}, (before, ran)
        if tables != ["none.t"]:
            assert sum(scan["Actual Rows"] * scan["Actual Loops"] for scan in scans(ran)) < 60, (before, ran)


@pytest.mark.usefixtures("plan_cache_mode")
def test_the_history_of_a_row_by_name_is_read_by_its_key(log: Connection):
    log.execute(RELATION, [SOURCE])
    types = {"before": "bigint", "table": "text", "key": "text", "actions": "text[]", "rows": "int", "bytes": "bigint"}
    asked = {"before": 2**62, "table": "public.t", "key": "7", "actions": [], "rows": 50, "bytes": 1_000_000}
    ran = prepared(log, "history_of_row", types, asked)
    assert ran[0]["Actual Rows"] == 50
    events = [scan for scan in scans(ran) if scan["Relation Name"] != "relations" and scan["Actual Rows"]]
    assert {scan["Node Type"] for scan in events} <= {"Index Scan", "Index Only Scan"}, events
    by_key = [scan for scan in events if "record_pk" in scan.get("Index Cond", "")]
    assert sum(scan["Actual Rows"] * scan["Actual Loops"] for scan in by_key) >= 50
    assert sum(scan["Actual Rows"] for scan in events if scan not in by_key) <= 1, "the newest seq"
