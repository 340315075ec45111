"""Names that no message tells are found by a look at the catalog, and recorded once the stream has passed that."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pipeline.capture.replication.relation_registry import RelationRegistry
from pipeline.postgres import connections
from pipeline.wal.messages import RelationColumn, RelationMessage
from tests.fixtures.altering import Altering
from tests.fixtures.shuffling import stored

COLUMNS = (RelationColumn(True, "id", 23, -1), RelationColumn(False, "c", 25, -1), RelationColumn(False, "b", 23, -1))
ALTERED = "alter table $schema.grown add b int; alter table $schema.grown rename a to c"


INSERT_LSN = "select (pg_current_wal_insert_lsn() - '0/0')::bigint"


def number(stage: Altering, query: str) -> int:
    row = stage.source.execute(query.encode()).fetchone()
    assert row is not None
    return int(row[0])


@contextmanager
def registered(stage: Altering) -> Iterator[RelationRegistry]:
    """What the worker has of the relations, which does not run."""
    stage.arrive()
    stage.stop()
    source, database = stage.config.source, stage.config.database
    with connections.connect(source, "source") as there, connections.connect(database, "log") as log:
        yield RelationRegistry(there, log, stored(stage.log))


def test_a_renamed_and_moved_table_has_both_names_from_its_next_change(stage: Altering) -> None:
    stage.run(
        "create schema old", "create schema new", "create table old.one (id int)", "insert into old.one values (1)"
    )
    with registered(stage) as registry:
        stage.run("alter table old.one rename to other; alter table old.other set schema new")
        registry.check_tables(lambda _: 0)
        assert registry.record_unsent((number(stage, INSERT_LSN) + 1, 0)) == {}
        stage.run("insert into new.other values (2)")
    stage.arrive()
    assert [event.table for event in stage.events("one", "other")] == ["old.one", "new.other"]
    stage.run("drop schema old, new cascade")


@pytest.mark.parametrize("sent", ["early", "late", "latest"])
def test_a_name_that_was_found_has_the_columns_that_were_sent_since(stage: Altering, sent: str) -> None:
    """`sent`: the schema in the message that comes between the look and the place at which the name is recorded."""
    stage.run("create schema early", "create table early.grown (id int primary key, a text)")
    stage.run("insert into early.grown values (1, 'x')")
    with registered(stage) as registry:
        stage.run("alter schema early rename to late")
        registry.check_tables(lambda _: 0)
        schema = "late"
        if sent == "latest":
            stage.run("alter schema late rename to latest")
            schema = "latest"
        stage.run(ALTERED.replace("$schema", schema))
        oid = number(stage, f"select '{schema}.grown'::regclass::oid")
        message = RelationMessage(oid, sent, "grown", "d", COLUMNS)
        learned = registry.describe(message, (1 if sent == "early" else number(stage, INSERT_LSN), 0))
        found = registry.record_unsent((number(stage, INSERT_LSN) + 1, 0)).get(message.oid, learned)
        columns, name = stage.log.execute(
            "select array(select c ->> 'name' from jsonb_array_elements(columns) c), table_schema"
            " from pipeline.relations where id = %s",
            [found.id],
        ).fetchall()[0]
    stage.run(f"drop schema {schema} cascade")
    assert (sorted(columns), name) == (["b", "c", "id"], schema)
    found.encoder.encode([b"1", b"x", b"2"])
