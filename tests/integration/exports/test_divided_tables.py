"""Which tables are divided among events tables, as the ledger, the routes and the logs say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from lake import ledger
from lake.states.lake_tables import LakeTables
from lake.storage.folder import DiskFolder
from lake.storage.identity import identify
from pipeline.log.table import DEFAULT
from tests.fixtures import small_log
from tests.fixtures.lake_ledger import EVENTS, SOURCE, Ledger, lake_ledger
from tests.fixtures.routed_log import AUDIT
from tests.fixtures.routed_log import route as send
from tests.integration.exports.test_lake_tables import FORMS

OID = 1001


@pytest.fixture
def log(database_dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database_dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture
def book(log: psycopg.Connection, database_dsn: str, tmp_path: Path) -> Iterator[Ledger]:
    """A lake of the default table with seqs 1 to 400 of one table, `public.t1`."""
    with lake_ledger(database_dsn, tmp_path / "lake") as made:
        log.execute(FORMS, [SOURCE])
        log.execute(
            "insert into pipeline.sources (id, system_identifier, database_name, slot) values (%s, '1', 'x', 'y')",
            [small_log.SOURCE],
        )
        for _ in range(4):
            made.publish("public.t1")
        yield made


def divided(book: Ledger, seq: int | None = None) -> str | None:
    tables = LakeTables(book.lake, seq or book.upto, [OID])
    [table] = tables.shown()
    return tables.division_reason(table)


def audit(log: psycopg.Connection, first: int, last: int) -> None:
    """Changes of `public.t1` that only AUDIT gets."""
    send(log, "t1", OID, first=first, last=last)
    log.execute(sql.SQL("update {} set source_database_id = %s").format(AUDIT.identifier), [SOURCE])


def record(log: psycopg.Connection, first_seqs: dict[str, int], *routes: dict[str, object]) -> None:
    given = [{"tables": [], "actions": [], "events_table": str(AUDIT), **each} for each in routes]
    log.execute(
        "insert into pipeline.routes (source_id, epoch, after_lsn, events_table, routes, first_seqs)"
        " values (%s, 0, 1, %s, %s, %s)",
        [SOURCE, str(DEFAULT), json.dumps(given), json.dumps(first_seqs)],
    )


def backfill(log: psycopg.Connection, last: int, **since: int) -> None:
    given = {str(DEFAULT): since["here"], **({str(AUDIT): since["there"]} if "there" in since else {})}
    log.execute(
        "insert into pipeline.backfills (source_id, epoch, table_oid, table_schema, table_name, kind, state,"
        " since_seqs, events_table, first_seq, last_seq)"
        " values (%s, 0, %s, 'public', 't1', 'asked', 'complete', %s, %s, 1, %s)",
        [SOURCE, OID, json.dumps(given), str(DEFAULT), last],
    )


def test_a_route_by_actions_divides_before_any_change_has_gone_there(log: psycopg.Connection, book: Ledger) -> None:
    send(log, "others", 1002)
    assert divided(book) is None
    record(log, {EVENTS: 301, str(AUDIT): 1}, {"tables": ["public.t*"], "actions": ["delete"]})
    assert divided(book) == (
        f"routes send some of its changes to {AUDIT}; read changes in each lake, or route all of them to one"
    )
    assert divided(book, 300) is None, "the route came later"
    record(log, {EVENTS: 310, str(AUDIT): 1}, {"tables": ["public.t1"]})
    assert divided(book) == f"routes send its changes to {AUDIT}; read the lake of that events table"
    record(log, {EVENTS: 320, str(AUDIT): 1}, {"tables": ["public.t2"]})
    assert divided(book) is None


def test_changes_elsewhere_divide_until_a_backfill_that_began_later(log: psycopg.Connection, book: Ledger) -> None:
    audit(log, 1, 5)
    why = divided(book)
    assert why and f"{AUDIT} has changes of the table" in why and "`pipeline backfill start public.t1`" in why
    backfill(log, 120, here=110, there=4)
    assert divided(book), "the fifth came after it had begun"
    backfill(log, 390, here=150)
    assert divided(book), "the other table was not there yet"
    backfill(log, 390, here=150, there=5)
    assert divided(book) is None
    assert divided(book, 300), "not all rows are read up to there"
    [table] = (tables := LakeTables(book.lake, 400, [OID])).shown()
    whole = tables.history(table).whole_since
    assert whole and (whole.since, whole.upto) == (150, 390)


def test_what_a_table_was_before_its_changes_went_elsewhere_is_known(log: psycopg.Connection, book: Ledger) -> None:
    audit(log, 1, 5)
    record(log, {EVENTS: 1, str(AUDIT): 1})
    record(log, {EVENTS: 201, str(AUDIT): 1}, {"tables": ["public.t1"]})
    record(log, {EVENTS: 301, str(AUDIT): 6})
    assert divided(book, 200) is None
    assert divided(book, 300)
    assert divided(book)


def test_what_another_lake_has_counts_when_its_log_has_it_no_more(
    log: psycopg.Connection, book: Ledger, database_dsn: str, tmp_path: Path
) -> None:
    with ledger.open_ledger(database_dsn) as other:
        inner = Ledger(identify(other, DiskFolder(tmp_path / "inner"), str(AUDIT)))
        inner.publish("public.t2", "public.t3")
        assert divided(book), "t2 is the table 1001 there"
        backfill(log, 390, here=150, there=100)
        assert divided(book) is None
