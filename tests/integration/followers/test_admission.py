"""What `followers add` refuses before anything is changed: each with its one line; and what it takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from pipeline.config.routes import Route
from pipeline.config.settings import load
from pipeline.errors import DatabaseUnavailableError, FollowerError, SourceUnfitError
from pipeline.followers.applying import position
from pipeline.followers.operating import adding as add_follower
from pipeline.followers.operating import status
from pipeline.followers.registry import FollowerOptions
from pipeline.operate.preflight import check
from pipeline.postgres import connections, role_locks, session_settings
from pipeline.postgres.embedded import EmbeddedServer
from pipeline.server import serve
from pipeline.terminal.json_values import as_json
from tests.fixtures.data_directories import prepare
from tests.fixtures.followers import INSTALLED, TABLES, Adding, run
from tests.fixtures.postgres import SETTINGS, bin_dir, free_port, unique

KEYS = [
    "create unique index on orders (id) where state is null",
    "create unique index on orders ((id + 1))",
    "alter table orders add unique (id) deferrable",
    "create unique index on orders (id, state)",
    "create index on orders (id)",
]


def test_an_empty_database_is_taken(adding: Adding, follower_dsn: str) -> None:
    added = adding.add(follower_dsn, None)
    found = added.follower
    assert added.warnings == []
    assert found.name.startswith("local-")
    assert (found.state, found.reason, found.remedy) == ("waiting", status.NO_SERVER, "start `pipeline serve`")
    assert [each.table for each in found.tables] == ["public.Odd name", "public.orders", "public.parted"]
    assert (found.seq, found.lag_seqs, found.lag_seconds, found.made_seq) == (0, 0, 0, 0)
    with psycopg.connect(follower_dsn) as connection:
        row = connection.execute("select count(*) from pg_class where relnamespace >= 16384").fetchone()
    assert row == (0,)


def test_only_some_tables(adding: Adding, follower_dsn: str) -> None:
    found = adding.add(follower_dsn, tables=("public.o*", "public.parted")).follower
    assert [each.table for each in found.tables] == ["public.orders", "public.parted"]
    assert found.patterns == ["public.o*", "public.parted"]
    assert "matches nothing.*; `pipeline status` names" in adding.refused(follower_dsn, "b", tables=("nothing.*",))
    assert "--tables takes patterns like public.orders" in adding.refused(follower_dsn, "b", tables=("orders",))


def test_names(adding: Adding, follower_dsn: str) -> None:
    adding.add(follower_dsn, "reports-1", tables=("public.orders",))
    assert 'there is a follower "reports-1"; choose another name' in adding.refused(follower_dsn, "reports-1")
    said = adding.refused(follower_dsn, "reports_1")
    assert "would have one password variable, PIPELINE_FOLLOWER_PASSWORD_REPORTS_1; choose another name" in said
    assert "a follower's name has 1 to 63" in adding.refused(follower_dsn, "postgresql://x")


def test_a_name_that_somebody_has_taken_meanwhile(adding: Adding, follower_dsn: str, monkeypatch: Any) -> None:
    adding.add(follower_dsn, "reports-1")
    monkeypatch.setattr("pipeline.followers.registry.list_names", lambda _: [])
    adding.known.log.execute("update pipeline.followers set system_identifier = 'another'")
    assert 'another command has just added a follower "reports_1", or' in adding.refused(follower_dsn, "reports_1")


def test_options_that_exclude_each_other(adding: Adding, follower_dsn: str) -> None:
    said = adding.refused(follower_dsn, copy="none", truncate=True)
    assert said == "--truncate empties tables before a copy, and --copy none makes none; leave one out"


def test_without_a_source(adding: Adding, follower_dsn: str) -> None:
    adding.known.log.execute("delete from pipeline.snapshot_tables; delete from pipeline.sources")
    said = adding.refused(follower_dsn, kind=FollowerError)
    assert said == "no source has been replicated from yet; start `pipeline serve` first"
    with connections.connect(adding.known.config.database, "pipeline database") as server:
        assert role_locks.try_acquire(server, "replication")
        role_locks.report(server, "replication", "db1:7", 7, "waiting", "it waits for a transaction")
        said = adding.refused(follower_dsn, kind=FollowerError)
    again = "try again when `pipeline status` says that it does"
    assert said == f"the server db1:7 runs, and does not replicate yet: it waits for a transaction; {again}"
    for application, lock in (
        ("pipeline boot", "none"),
        ("pipeline serve", "serve"),
        ("pipeline serve", "serve replication"),
    ):
        with connections.connect(adding.known.config.database, "pipeline database", name=application) as server:
            assert role_locks.try_acquire(server, lock)
            said = adding.refused(follower_dsn, kind=FollowerError)
            assert said == f"a server runs, and does not replicate yet: it has just started; {again}"


def test_a_database_that_does_not_exist(adding: Adding, follower_dsn: str) -> None:
    said = adding.refused(make_conninfo(follower_dsn, dbname="nowhere"), kind=DatabaseUnavailableError)
    assert 'database "nowhere" does not exist; create it, or correct --dsn' in said
    assert said.startswith('follower "reports" (')


def test_a_service_that_is_not_defined(adding: Adding) -> None:
    said = adding.refused("service=nowhere", kind=DatabaseUnavailableError)
    assert 'definition of service "nowhere" not found; correct the service file' in said


def test_missing_tables(adding: Adding, follower_dsn: str) -> None:
    run(follower_dsn, "create table orders (id int primary key, state text)")
    said = adding.refused(follower_dsn, schema="exists")
    assert 'follower "reports": it has no public.Odd name, public.parted; make them there, or use --schema cr' in said
    said = adding.refused(follower_dsn, copy="none")
    assert "it has no public.Odd name, public.parted; with --copy none its tables must be equal" in said
    adding.known.log.execute("update pipeline.snapshot_tables set complete_seq = 0, reason = null")
    said = adding.refused(follower_dsn, copy="log")
    assert "it has no public.Odd name, public.parted; with --copy log its tables must be there" in said
    assert adding.add(follower_dsn, schema="exists", tables=("public.orders",)).follower.name == "reports"


def test_what_is_no_table(adding: Adding, follower_dsn: str) -> None:
    run(follower_dsn, "create view orders as select 1 as id")
    assert "public.orders there is a view or another object that is no table" in adding.refused(follower_dsn)


@pytest.mark.parametrize("schema", ["create", "exists"])
def test_missing_columns(adding: Adding, follower_dsn: str, schema: str) -> None:
    run(follower_dsn, f'{TABLES} alter table orders drop column state, add column "State" text')
    said = adding.refused(follower_dsn, schema=schema)
    assert 'follower "reports": public.orders there has no column state; add what is missing' in said
    run(follower_dsn, "alter table orders add column state text, add column own int")
    assert adding.add(follower_dsn, schema=schema).warnings == []


def test_a_missing_key(adding: Adding, follower_dsn: str) -> None:
    run(follower_dsn, f"{TABLES} alter table orders drop constraint orders_pkey")
    for index in (*KEYS, "; ".join(KEYS)):
        again = "create table kept (like orders); drop table orders; alter table kept rename to orders"
        run(follower_dsn, f"{again}; {index}")
        said = adding.refused(follower_dsn)
        missing = "public.orders there has no unique index on its key (id), by which rows are found; make one"
        assert missing in said, index
    run(follower_dsn, "create unique index on orders (id) include (state)")
    adding.add(follower_dsn)


@pytest.mark.parametrize("holds", ["primary key (id)", "unique (id)"])
def test_a_key_that_is_deferrable_at_the_source(adding: Adding, follower_dsn: str, holds: str) -> None:
    deferrable = "alter table orders drop constraint orders_pkey, add primary key (id) deferrable"
    with psycopg.connect(adding.known.config.source, autocommit=True) as source:
        source.execute(f"{deferrable}, replica identity full".encode())
    run(follower_dsn, f"{TABLES} alter table orders drop constraint orders_pkey, add {holds}")
    said = adding.refused(follower_dsn)
    assert "public.orders there has a unique index on its key (id) that is not deferrable, but at the source" in said
    run(follower_dsn, f"drop table orders; {TABLES.splitlines()[1]} {deferrable}")
    adding.add(follower_dsn)


def test_tables_with_rows(adding: Adding, follower_dsn: str) -> None:
    run(follower_dsn, f'{TABLES} insert into orders values (1); insert into "Odd name" values (1)')
    said = adding.refused(follower_dsn)
    assert "public.Odd name, public.orders there have rows; use --truncate to empty them before the copy, or" in said
    assert "public.orders there has rows" in adding.refused(follower_dsn, tables=("public.orders",))
    assert adding.add(follower_dsn, truncate=True).follower.truncate
    assert status.remove(adding.known.log, "reports").name == "reports"
    assert adding.add(follower_dsn, copy="none").follower.copy == "none"


def test_a_table_that_somebody_locks(adding: Adding, follower_dsn: str, monkeypatch: Any) -> None:
    monkeypatch.setattr("pipeline.followers.admission.tables._LOCK_TIMEOUT", "50ms")
    run(follower_dsn, TABLES)
    with psycopg.connect(follower_dsn) as other:
        other.execute("lock table orders in access exclusive mode")
        said = adding.refused(follower_dsn)
    assert "another session locks one of its tables, so the server cannot check if the table has rows; try" in said
    adding.add(follower_dsn)


def test_rows_of_partitions_and_not_of_children_count(adding: Adding, follower_dsn: str) -> None:
    run(
        follower_dsn,
        """create table orders (id int primary key, state text); create table child () inherits (orders);
        create table parted (id int primary key) partition by range (id);
        create table part partition of parted for values from (0) to (9); insert into child values (1)""",
    )
    tables = ("public.orders", "public.parted")
    run(follower_dsn, "insert into parted values (1)")
    assert "public.parted there has rows" in adding.refused(follower_dsn, tables=tables)
    run(follower_dsn, "truncate parted")
    adding.add(follower_dsn, tables=tables)


def test_routed_tables(adding: Adding, follower_dsn: str) -> None:
    routes = (Route(tables=("public.o*",), actions=("delete",), events_table="public.audit"),)
    config = adding.known.config.model_copy(update={"routes": routes})
    said = adding.refused(follower_dsn, config=config)
    assert said.startswith("PIPELINE_ROUTES sends changes of public.orders to another events table than public.sequin_")
    assert "name tables with --tables that are not routed" in said
    adding.add(follower_dsn, config=config, tables=("public.parted",))


def test_a_route_to_the_default_table_is_none(adding: Adding, follower_dsn: str) -> None:
    routes = (
        Route(tables=("public.orders",), events_table="public.sequin_events"),
        Route(tables=("public.o*",), events_table="public.audit"),
        Route(tables=("*.*",), actions=("message",), events_table="public.messages"),
    )
    adding.add(follower_dsn, config=adding.known.config.model_copy(update={"routes": routes}))


def test_a_schema_of_a_newer_server(adding: Adding, follower_dsn: str) -> None:
    run(follower_dsn, INSTALLED.format(99))
    said = adding.refused(follower_dsn)
    newest = f"made by a newer server, and this one knows {position.SCHEMA_VERSION}; use"
    assert f"its schema pipeline_follower is of version 99, {newest}" in said
    run(follower_dsn, "comment on schema pipeline_follower is 'version 1'")
    adding.add(follower_dsn)


def test_a_database_that_cannot_hold_every_text_is_a_warning(adding: Adding, follower_dsn: str) -> None:
    name = unique("latin")
    create = f"create database {name} encoding 'latin1' locale 'C' template template0"
    run(follower_dsn, create)
    try:
        [warning] = adding.add(make_conninfo(follower_dsn, dbname=name)).warnings
        assert f"database {name} is encoded in LATIN1, which cannot hold every text" in warning
    finally:
        run(follower_dsn, f"drop database {name} with (force)")


def test_a_database_that_is_read_only(adding: Adding, follower_dsn: str) -> None:
    with psycopg.connect(follower_dsn, autocommit=True) as connection:
        connection.execute(f"alter database {connection.info.dbname} set transaction_read_only = on")
    adding.add(follower_dsn)  # a default of the database is not its state: our sessions set another


def test_json_is_what_json_can_hold(adding: Adding, follower_dsn: str) -> None:
    assert json.loads(json.dumps(as_json(adding.add(follower_dsn).follower)))["name"] == "reports"


def test_tables_that_another_source_feeds_are_not_fed_twice(adding: Adding, follower_dsn: str) -> None:
    other = "12345678-1234-1234-1234-123456789012"
    run(follower_dsn, INSTALLED.format(position.SCHEMA_VERSION))
    run(
        follower_dsn,
        f"""
        insert into pipeline_follower.position (source_database_id, follower, source_epoch, seq)
        values ('{other}', 'old', 0, 12);
        insert into pipeline_follower.tables
        values ('{other}', 'old', 1, 'public', 'orders'), ('{other}', 'old', 2, 'x', 'parted');
        """,
    )
    said = adding.refused(follower_dsn)
    assert 'another source writes to public.orders there as the follower "old", at seq 12; leave out' in said
    assert adding.add(follower_dsn, "some", tables=("public.parted",)).warnings == []
    adding.known.log.execute("delete from pipeline.followers")
    run(follower_dsn, "update pipeline_follower.position set released = 1 where follower = 'old'")
    adding.add(follower_dsn, "released")
    adding.known.log.execute("delete from pipeline.followers")
    run(follower_dsn, "update pipeline_follower.position set released = null where follower = 'old'")
    run(follower_dsn, adding.refused(follower_dsn).rpartition("delete its position there: ")[2])
    adding.add(follower_dsn)


def test_a_source_that_cannot_have_the_one_slot_is_named_with_the_setting(
    tmp_path: Path, database_dsn: str, follower_dsn: str
) -> None:
    """Three followers need no more than one does."""
    settings = {**SETTINGS, "wal_level": "replica", "max_replication_slots": "1", "max_wal_senders": "1"}
    server = EmbeddedServer(tmp_path / "meagre", bin_dir=bin_dir(18), settings=settings, port=free_port())
    prepare(server.directory, server.bin_dir)
    server.start()
    try:
        config = load(source_dsn=server.dsn("postgres"), database_dsn=database_dsn)
        with connections.connect(config.database, "pipeline database") as log:

            def refused() -> str:
                with (
                    connections.connect(config.source, "source", settings=session_settings.SERVER) as source,
                    pytest.raises(FollowerError) as raised,
                ):
                    add_follower.add(config, source, log, "reports", follower_dsn, FollowerOptions())
                return str(raised.value)

            run(config.source, "select pg_create_physical_replication_slot('theirs')")
            slots = "max_replication_slots: all 1 are in use"
            assert refused() == (
                "source: wal_level: wal_level = replica, but decoding needs logical; set wal_level = logical in its "
                f"configuration and restart the source; and {slots}; set max_replication_slots to 2 or more, or free "
                "one that is not needed"
            )
            found = [each for each in check.run(config) if each.level == "error" and each.name != "port"]
            assert [each.name for each in found] == ["wal_level", "max_replication_slots"]
            with pytest.raises(
                SourceUnfitError, match=rf"wal_level = replica; set .* restart it\. Also, {slots} \(set max"
            ):
                serve.boot(config)
            run(config.source, "select pg_drop_replication_slot('theirs')")
            run(config.source, "alter system set wal_level = logical")
            server.stop()
            server.start()
            run(config.source, "select pg_create_logical_replication_slot('theirs', 'pgoutput')")
            assert refused() == (
                "source: max_replication_slots: all 1 are in use; set max_replication_slots to 2 or more, "
                "or free one that is not needed"
            )
            run(config.source, "select pg_drop_replication_slot('theirs')")
            assert refused() == "no source has been replicated from yet; start `pipeline serve` first"
            assert status.list_followers(log) == []
    finally:
        server.stop("immediate")
