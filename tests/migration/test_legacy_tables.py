"""An events table of an older server is migrated at boot, and its rows are what they were."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from psycopg import sql

from pipeline.errors import SchemaError
from pipeline.log import indexes, legacy_tables, table_shape
from pipeline.log.table import DEFAULT, EventsTable
from pipeline.postgres import migrations
from tests.fixtures.legacy_tables import (
    BY_DAY,
    PLAIN,
    ROWS,
    SHAPES,
    Shape,
    boot,
    fingerprint,
    first_boot,
    old_rows,
    read_on,
    shuffled,
)

ON_18 = (SHAPES[0], BY_DAY)
"""The rest is tried on 15 only, on which such tables are."""


@pytest.mark.parametrize(
    ("server", "shape"),
    [pytest.param(15, shape, id=f"pg15, {shape}") for shape in SHAPES]
    + [pytest.param(18, shape, id=f"pg18, {shape}") for shape in ON_18],
    indirect=["server"],
)
def test_a_legacy_table_is_migrated_at_boot(shape: Shape, bare_dsn: str, old: psycopg.Connection[Any]):
    shape.create(old)
    before, highest = old_rows(old, shape.table), read_on(old, shape.table)[-1][0]
    boot(bare_dsn, shape.table)
    added = {name: table_shape.describe_relation(old, shape.table).columns[name].not_null for name in table_shape.ADDED}  # type: ignore[union-attr]
    assert added == {name: name == "source_epoch" for name in table_shape.ADDED}, "columns are there, and may be null"
    assert old_rows(old, shape.table) == before, "old rows are untouched"
    once = fingerprint(old, shape.table.schema)
    boot(bare_dsn, shape.table)
    assert fingerprint(old, shape.table.schema) == once, "the second boot changes nothing"
    shuffled(bare_dsn, shape.table, 1001, 1002)
    new = read_on(old, shape.table)[ROWS:]
    assert [row[3] for row in new] == ["1001", "1002"]
    assert all(seq > highest and lsn is not None and idx == 0 for seq, lsn, idx, _ in new)
    assert old_rows(old, shape.table) == before


def test_a_reader_that_keeps_its_place_sees_old_and_new_in_order(bare_dsn: str, old: psycopg.Connection[Any]):
    PLAIN.create(old)
    last = read_on(old, DEFAULT)[ROWS // 2][0]
    boot(bare_dsn)
    shuffled(bare_dsn, DEFAULT, 1001)
    rest = read_on(old, DEFAULT, last)
    assert len(rest) >= ROWS // 2 - 2
    assert rest[-1][3] == "1001"
    comment = old.execute("select obj_description('public.sequin_events'::regclass)").fetchone()
    assert comment == ("$sequin-events$",)


def test_a_table_made_beside_the_default_one_is_like_it(empty_dsn: str, first: psycopg.Connection[Any]):
    first.execute("create schema log")
    first_boot(empty_dsn, EventsTable("log", "events"))
    query = """
        select a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attcollation,
            replace(pg_get_expr(d.adbin, d.adrelid), %(sequence)s, 'its own')
        from pg_attribute a left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
        where a.attrelid = %(table)s::regclass and a.attnum > 0 order by a.attnum
    """
    made, default = (
        first.execute(query, {"table": table, "sequence": sequence}).fetchall()
        for table, sequence in (("log.events", "log.events_seq_seq"), ("public.sequin_events", "sequin_events_seq_seq"))
    )
    assert made == default


def test_a_migration_killed_half_way_changes_nothing_and_can_be_repeated(
    empty_dsn: str, first: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
):
    PLAIN.create(first)
    before = fingerprint(first, "public")
    number = legacy_tables._give_sequence

    def die(connection: Any, *arguments: Any) -> None:
        number(connection, *arguments)
        first.execute("select pg_terminate_backend(%s)", [connection.info.backend_pid])

    monkeypatch.setattr(legacy_tables, "_give_sequence", die)
    with pytest.raises(SchemaError):
        migrations.upgrade(empty_dsn)
    assert fingerprint(first, "public") == before
    monkeypatch.undo()
    first_boot(empty_dsn)
    shuffled(empty_dsn, DEFAULT, 7)
    assert read_on(first, DEFAULT)[-1][3] == "7"


def test_two_servers_that_boot_together_migrate_it_once(bare_dsn: str, old: psycopg.Connection[Any]):
    table = EventsTable("Audit-Log", "Sequin$Events")
    replace(PLAIN, table=table).create(old)
    with ThreadPoolExecutor(2) as both:
        for each in [both.submit(boot, bare_dsn, table) for _ in range(2)]:
            each.result()
    assert table_shape.describe_relation(old, table).is_current  # type: ignore[union-attr]


HIGHER = 2**52
NUMBERED = {
    "by a sequence of another name": [
        "create sequence other", "alter table sequin_events alter column seq set default nextval('other')",
        f"select setval('other', {HIGHER})"],
    "by an identity": [
        "alter table sequin_events alter column seq add generated always as identity",
        f"select setval('sequin_events_seq_seq', {HIGHER})"],
    "by no column, but there is a sequence of that name": [
        "create sequence sequin_events_seq_seq as integer minvalue 1 cycle",
        "alter sequence sequin_events_seq_seq as bigint maxvalue 9223372036854775807",
        f"select setval('sequin_events_seq_seq', {HIGHER})"],
}  # fmt: skip


@pytest.mark.parametrize("how", NUMBERED)
def test_a_seq_that_is_numbered_already_goes_on_above(how: str, bare_dsn: str, old: psycopg.Connection[Any]):
    PLAIN.create(old)
    for statement in NUMBERED[how]:
        old.execute(statement)
    boot(bare_dsn)
    shuffled(bare_dsn, DEFAULT, 1)
    assert read_on(old, DEFAULT)[-1][0] > HIGHER
    query = (
        "select pg_get_serial_sequence('sequin_events', 'seq'), seqcycle from pg_sequence where seqrelid = %s::regclass"
    )
    assert old.execute(query, ["sequin_events_seq_seq"]).fetchone() == ("public.sequin_events_seq_seq", False)


def test_an_index_that_was_dropped_is_made_again(bare_dsn: str, old: psycopg.Connection[Any]):
    for shape in (PLAIN, replace(BY_DAY, table=EventsTable("audit", "changes"))):
        shape.create(old)
        old.execute(sql.SQL("drop index {}").format(sql.Identifier(shape.table.schema, f"{shape.table.name}_seq_idx")))
        boot(bare_dsn, shape.table)
        found = table_shape.describe_relation(old, shape.table)
        assert found and indexes.index_exists(old, found.oid, indexes.SEQ)


def test_a_downgrade_leaves_an_old_table_and_an_upgrade_goes_on(empty_dsn: str, first: psycopg.Connection[Any]):
    PLAIN.create(first)
    before = old_rows(first, DEFAULT)
    first_boot(empty_dsn)
    shuffled(empty_dsn, DEFAULT, 1)
    migrations.downgrade(empty_dsn, "base")
    first_boot(empty_dsn)
    shuffled(empty_dsn, DEFAULT, 2)
    assert old_rows(first, DEFAULT) == before
    assert [row[3] for row in read_on(first, DEFAULT)[ROWS:]] == ["1", "2"]


def test_an_empty_old_table_begins_at_one(bare_dsn: str, old: psycopg.Connection[Any]):
    PLAIN.create(old, rows=0)
    boot(bare_dsn)
    shuffled(bare_dsn, DEFAULT, 1)
    assert read_on(old, DEFAULT)[0][0] == 1
