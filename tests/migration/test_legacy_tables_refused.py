"""What cannot be migrated, or not now, is said in a plain line, and nothing is changed."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from pipeline.errors import SchemaError
from pipeline.log import legacy_tables, table_shape
from pipeline.log.table import DEFAULT, EventsTable
from pipeline.postgres import migrations
from tests.fixtures.legacy_tables import BY_DAY, PLAIN, Shape, boot, fingerprint, first_boot, old_rows, shuffled
from tests.fixtures.postgres import Cluster, unique
from tests.fixtures.waiting import eventually


def test_what_is_no_events_table_is_refused_and_not_touched(empty_dsn: str, first: psycopg.Connection[Any]):
    first.execute("create table sequin_events (id int primary key, seq text, action text not null, kind text not null)")
    first.execute("insert into sequin_events values (1, 'a', 'b', 'c')")
    before = fingerprint(first, "public")
    with pytest.raises(SchemaError, match="not an events table") as refused:
        first_boot(empty_dsn)
    for said in (
        "no column source_database_id, source_table_oid",
        "column seq is text where bigint is expected",
        "column kind is not null and has no default",
        "PIPELINE_EVENTS_TABLE",
    ):
        assert said in str(refused.value)
    assert fingerprint(first, "public") == before
    assert migrations.current(empty_dsn) is None


@pytest.mark.parametrize("kind", ["view", "materialized view"])
def test_a_view_of_that_name_is_refused(kind: str, bare_dsn: str, old: psycopg.Connection[Any]):
    old.execute(f"create {kind} sequin_events as select 1 as seq")
    with pytest.raises(SchemaError, match=rf"^public.sequin_events is a {kind}, not an events table; name another"):
        boot(bare_dsn)


def test_a_foreign_table_with_the_default_name_is_left_alone(empty_dsn: str, first: psycopg.Connection[Any]):
    PLAIN.create(first)
    first.execute("create schema log")

    def theirs() -> list[Any]:
        return [row for row in fingerprint(first, "public") if row[0].startswith("sequin_events")]

    before = old_rows(first, DEFAULT), theirs()
    first_boot(empty_dsn, EventsTable("log", "events"))
    assert (old_rows(first, DEFAULT), theirs()) == before
    shuffled(empty_dsn, EventsTable("log", "events"), 1)
    assert first.execute("select count(*) from pipeline.events").fetchone() == (1,)


def test_somebody_elses_table_is_refused_with_the_grant_that_is_missing(
    server: Cluster, bare_dsn: str, old: psycopg.Connection[Any]
):
    PLAIN.create(old)
    user = unique("user")
    with server.connect() as admin:
        admin.execute(f"create role {user} login")
        try:
            name = old.info.dbname
            old.execute(f"grant create on database {name} to {user}")
            old.execute(f"grant create on schema public to {user}")
            owner = old.info.user
            with psycopg.connect(bare_dsn, user=user, autocommit=True) as theirs:
                with pytest.raises(SchemaError, match=rf'belongs to "{owner}".*grant "{owner}" to "{user}"$'):
                    legacy_tables.migrate(theirs, DEFAULT)
                assert not table_shape.describe_relation(old, DEFAULT).is_current  # type: ignore[union-attr]
                old.execute(f"alter table sequin_events owner to {user}")
                assert legacy_tables.migrate(theirs, DEFAULT)
        finally:
            old.execute(f"drop owned by {user} cascade")
            admin.execute(f"drop role {user}")


def test_a_reader_that_holds_it_is_waited_for_and_then_named(
    bare_dsn: str, old: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
):
    PLAIN.create(old)
    monkeypatch.setattr(legacy_tables, "LOCK_TIMEOUT", "50ms")
    monkeypatch.setattr(legacy_tables, "PAUSE", 0.01)
    with psycopg.connect(bare_dsn, application_name="a report") as reader:
        reader.execute("select from sequin_events")
        held = rf"locked by a report \(pid {reader.info.backend_pid}, user .*pg_terminate_backend.*start again$"
        with pytest.raises(SchemaError, match=held):
            boot(bare_dsn)
        assert table_shape.describe_relation(old, DEFAULT).lacks == list(table_shape.ADDED)  # type: ignore[union-attr]
        monkeypatch.setattr(legacy_tables, "ATTEMPTS", 10_000)
        migration = threading.Thread(target=boot, args=[bare_dsn, DEFAULT])
        migration.start()
        waiting = "select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
        eventually(lambda: old.execute(waiting).fetchone() is not None)
        reader.rollback()
        migration.join()
    assert table_shape.describe_relation(old, DEFAULT).is_current  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "taken", ["create table sequin_events_seq_seq ()", "create table t (sequin_events serial, c int default 1)"]
)
def test_a_name_of_the_sequence_that_is_taken_is_said(taken: str, bare_dsn: str, old: psycopg.Connection[Any]):
    PLAIN.create(old)
    old.execute(taken)
    if "serial" in taken:
        old.execute("alter sequence t_sequin_events_seq rename to sequin_events_seq_seq")
    with pytest.raises(
        SchemaError, match=r"its sequence must be named sequin_events_seq_seq, but that is a .*rename it"
    ):
        boot(bare_dsn)
    assert table_shape.describe_relation(old, DEFAULT).lacks == list(table_shape.ADDED)  # type: ignore[union-attr]


@pytest.mark.parametrize("shape", [PLAIN, BY_DAY], ids=str)
def test_the_older_server_can_no_longer_write_among_our_events(
    shape: Shape, bare_dsn: str, old: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture
):
    shape.create(old)
    old.execute("update sequin_events set inserted_at = now() where seq = (select max(seq) from sequin_events)")
    boot(bare_dsn)
    assert "another program wrote a row" in caplog.text
    with pytest.raises(psycopg.errors.CheckViolation, match=table_shape.FENCE):
        replace(shape, seq="microseconds").add(old, 1)
