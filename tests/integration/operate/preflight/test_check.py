"""The preflight: each finding, its level and its remedy, and nothing is changed."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from pipeline.capture.catchup import limits
from pipeline.cli.render import cures, status
from pipeline.config.settings import load
from pipeline.findings import CheckFinding
from pipeline.log import table_setup
from pipeline.log.table import EventsTable
from pipeline.operate.preflight import check, source_checks
from pipeline.operate.preflight.check import pooler
from pipeline.postgres import connections, poolers, session_settings
from tests.fixtures.postgres import Cluster, free_port, unique

Check = Callable[..., dict[str, CheckFinding]]


@pytest.fixture(scope="module")
def fresh(cluster: Cluster) -> Iterator[str]:
    """A database in which nothing is, after each check too."""
    with cluster.database("fresh") as dsn:
        yield dsn


@pytest.fixture
def findings(source_dsn: str, slot_name: str, fresh: str, tmp_path: Path) -> Check:
    """Check the test's source against a pipeline database that was never migrated; both must stay as they are."""

    def run(accept: tuple[str, ...] = (), **settings: object) -> dict[str, CheckFinding]:
        defaults: dict[str, Any] = {
            "source_dsn": source_dsn,
            "database_dsn": fresh,
            "slot": slot_name,
            "data_dir": tmp_path,
            "http_port": free_port(),
            "grpc_port": "off",
        }
        before = state(source_dsn), state(fresh)
        found = check.run(load(**{**defaults, **settings}), accept)
        assert (state(source_dsn), state(fresh)) == before
        return {finding.name: finding for finding in found}

    return run


def state(dsn: str) -> list[tuple[object, ...]]:
    """Every object there is, and every slot."""
    with psycopg.connect(dsn) as conn:
        return conn.execute(
            "select 'class', oid::text from pg_class union all select 'namespace', nspname from pg_namespace"
            " union all select 'publication', pubname from pg_publication"
            " union all select 'slot', slot_name from pg_replication_slots where database = current_database()"
            " order by 1, 2"
        ).fetchall()


@pytest.fixture
def source(source_dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(source_dsn, autocommit=True) as conn:
        yield conn


def levels(found: dict[str, CheckFinding]) -> dict[str, str]:
    return {name: finding.level for name, finding in found.items() if finding.level != "ok"}


def test_all_is_well(findings: Check, source: psycopg.Connection) -> None:
    source.execute("create table orders (id int primary key)")
    found = findings()
    assert levels(found) == {}
    assert found["slot"].text.endswith("will be created")
    assert found["publication"].text == '"pipeline" will be created'
    assert "will create it" in found["pipeline schema"].text


def test_no_table_matches(findings: Check, source: psycopg.Connection) -> None:
    found = findings(tables="nowhere.*")
    assert levels(found) == {} and found["tables"].text.startswith("the source has no tables yet")
    source.execute("create table orders (id int primary key)")
    found = findings(tables="nowhere.*")
    assert levels(found) == {"tables": "error"}
    assert found["tables"].text == "PIPELINE_TABLES (nowhere.*) matches none of the source's tables (public.orders)"
    source.execute("create publication pipeline for table orders")
    assert levels(findings(tables="nowhere.*")) == {"tables": "warning"}


def test_a_user_who_owns_no_table(findings: Check, source: psycopg.Connection, source_dsn: str) -> None:
    name = unique("role")
    role, database = sql.Identifier(name), sql.Identifier(source.info.dbname)
    source.execute("create table orders (id int primary key)")
    source.execute(sql.SQL("create role {} login replication").format(role))
    source.execute(sql.SQL("grant create on database {} to {}").format(database, role))
    try:
        dsn = make_conninfo(source_dsn, user=name)
        assert levels(findings(source_dsn=dsn)) == {"table owners": "error", "snapshot rights": "warning"}
        source.execute("create table customers (id int primary key)")
        source.execute(sql.SQL("alter table customers owner to {}").format(role))
        assert levels(findings(source_dsn=dsn)) == {"table owners": "warning"}
    finally:
        source.execute(sql.SQL("drop owned by {0}; drop role {0}").format(role))


@pytest.mark.parametrize(
    ("settings", "level", "said"),
    [
        ({"catchup_max_slots": 2}, "ok", "a backlog of more than 1.0 GB is read by 2 slots at once"),
        ({"catchup_max_slots": 1, "catchup_threshold": "64MB"}, "ok", "more than 64.0 MB is read by one slot"),
        ({"catchup_threshold": "off"}, "ok", "off: a backlog is read by one slot"),
        ({"catchup_max_slots": 64}, "warning", "the source has .* of its max_[a-z_]+ = 50 free"),
        ({"catchup_max_slots": 2, "slot": "s" * 60}, "warning", "PIPELINE_SLOT has 60 letters"),
    ],
)
def test_how_many_slots_could_read_a_backlog(
    findings: Check, settings: dict[str, Any], level: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "count_cores", lambda: 64)
    found = findings(**settings)[source_checks.CATCH_UP]
    assert found.level == level
    assert re.search(said, found.text)


def test_a_table_without_a_replica_identity(findings: Check, source: psycopg.Connection) -> None:
    source.execute("create table notes (text text)")
    found = findings()
    assert levels(found) == {"replica identity": "warning"}
    assert "public.notes" in found["replica identity"].text
    assert "primary key" in found["replica identity"].remedy
    assert "updates and deletes there still work" in found["replica identity"].text


@pytest.mark.parametrize(
    ("publication", "said"),
    [
        ("for table orders", None),  # the keyless partition is not in it
        ("for table by_root", None),  # its rows are in a partition that has a key
        ("for table orders, parted with (publish = 'insert, truncate')", None),
        ("for table parted with (publish = 'insert, update')", "updates of them fail"),
        ("for table parted with (publish_via_partition_root = true)", "updates and deletes of them fail"),
    ],
)
def test_updates_are_said_to_fail_where_they_do(
    findings: Check, source: psycopg.Connection, publication: LiteralString, said: str | None
) -> None:
    source.execute(
        "create table orders (id int primary key); create table parted (id int) partition by range (id);"
        "create table part partition of parted for values from (0) to (9); insert into part values (1);"
        "create table by_root (id int) partition by range (id);"
        "create table leaf partition of by_root (id primary key) for values from (0) to (9);"
        "insert into leaf values (1); create publication pipeline " + publication
    )
    told = findings().get("replica identity")
    if said is None:
        assert told is None
        source.execute("update parted set id = 2; update by_root set id = 2")
    else:
        assert told is not None and told.text == f'public.part in "pipeline" without a replica identity: {said}'
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
            source.execute("update parted set id = 2")


def test_who_made_a_publication_is_not_guessed(findings: Check, source: psycopg.Connection, source_dsn: str) -> None:
    source.execute("create table notes (text text); create publication pipeline; create publication pipeline_keyless")
    found = findings(database_dsn=make_conninfo(source_dsn, host="127.0.0.1", port="1"))
    assert found["publication"].text.endswith("is known once the pipeline database answers")
    assert levels(found) == {"pipeline database": "error"}


def test_the_sql_that_is_missing_cures(
    findings: Check, source: psycopg.Connection, source_dsn: str, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    name = unique('ro"le; x')
    source.execute('create table "or""ders" (id int primary key); create table notes (text text)')
    source.execute(sql.SQL("create role {} login").format(sql.Identifier(name)))
    try:
        with cluster.database("empty") as empty:
            dsn, database = make_conninfo(source_dsn, user=name), make_conninfo(empty, user=name)
            found = list(findings(source_dsn=dsn, database_dsn=database).values())
            assert cures.show(found, None) == 0
            shown = capsys.readouterr()
            assert (
                shown.out.startswith("-- at the source\nalter role ") and "-- at the pipeline database\n" in shown.out
            )
            assert "--at source" in shown.err
            assert '"or""ders"' in shown.out and "notes" not in shown.out
            for at, admin in (("source", source_dsn), ("pipeline", empty)):
                cures.show(found, at)
                with psycopg.connect(admin, autocommit=True) as conn:
                    conn.execute(capsys.readouterr().out.encode())
            found = list(findings(source_dsn=dsn, database_dsn=database).values())
            assert [finding for finding in found if finding.level == "error"] == []
            assert cures.show([each for each in found if each.name != "tables"], None) == 0
            assert capsys.readouterr().out == ""
    finally:
        source.execute(sql.SQL("drop owned by {0}; drop role {0}").format(sql.Identifier(name)))


def test_who_owns_the_tables_needs_a_right_only(findings: Check, source: psycopg.Connection, source_dsn: str) -> None:
    name = unique("role")
    role = sql.Identifier(name)
    source.execute(sql.SQL("create role {} login replication").format(role))
    source.execute("create table notes (text text)")
    source.execute(sql.SQL("alter table notes owner to {}").format(role))
    try:
        dsn = make_conninfo(source_dsn, user=name)
        assert findings(source_dsn=dsn)["tables"].sql == [
            f'grant create on database "{source.info.dbname}" to "{name}"'
        ]
    finally:
        source.execute(sql.SQL("drop owned by {0}; drop role {0}").format(role))


def test_errors_that_no_sql_cures_are_told_apart(findings: Check, capsys: pytest.CaptureFixture[str]) -> None:
    assert cures.show([CheckFinding("error", "x", "y", "z")], None) == 1
    assert capsys.readouterr() == ("", "1 error that SQL cannot fix:\n  x: y; z\n")
    assert cures.show(list(findings().values()), None) == 0
    assert capsys.readouterr() == ("", "")


def test_a_publication_of_somebody_else(findings: Check, source: psycopg.Connection) -> None:
    source.execute("create table orders (id int primary key); create table notes (text text)")
    source.execute("create table other (id int primary key)")
    source.execute("create publication pipeline for table orders, notes with (publish_via_partition_root = true)")
    found = findings()
    assert levels(found) == dict.fromkeys(("publication root", "replica identity", "tables"), "warning")
    assert "updates and deletes of them fail" in found["replica identity"].text
    assert found["tables"].text.startswith("public.other: not in")
    source.execute("drop publication pipeline; create publication pipeline for all tables with (publish = 'insert')")
    found = findings()
    assert levels(found) == {"publication actions": "warning"}
    assert found["publication actions"].text.endswith("updates and deletes and truncates")


def test_a_slot_that_cannot_be_used(findings: Check, source: psycopg.Connection, slot_name: str) -> None:
    source.execute("create table orders (id int primary key)")
    source.execute("select pg_create_logical_replication_slot(%s, 'pgoutput', twophase => true)", [slot_name])
    found = findings()
    assert levels(found) == {"slot": "error"}
    assert "two_phase" in found["slot"].text
    assert found["slot"].remedy == "choose another PIPELINE_SLOT, or drop this one"


def test_a_database_that_does_not_answer(findings: Check, source_dsn: str) -> None:
    nowhere = make_conninfo(source_dsn, host="127.0.0.1", port="1")
    found = findings(source_dsn=nowhere)
    assert levels(found) == {"source": "error"}
    assert found["source"].remedy.endswith("PIPELINE_SOURCE_DSN")
    assert found["pipeline schema"].level == "ok"
    found = findings(database_dsn=nowhere)
    assert levels(found) == {"pipeline database": "error"}
    assert found["wal_level"].level == "ok"


def test_a_user_without_rights(findings: Check, source: psycopg.Connection, source_dsn: str) -> None:
    name = unique("role")
    source.execute("create table orders (id int primary key)")
    source.execute(sql.SQL("create role {} login").format(sql.Identifier(name)))
    try:
        dsn = make_conninfo(source_dsn, user=name)
        found = findings(source_dsn=dsn)
        unread = {"snapshot rights": "warning"}
        assert levels(found) == {**dict.fromkeys(("replication right", "tables"), "error"), **unread}
        assert found["snapshot rights"].text == f'user "{name}" may not read public.orders'
        assert found["snapshot"].text == "none of 1 table can be read: see snapshot rights"
        assert found["snapshot rights"].sql == [f'grant select on public.orders to "{name}"']
        assert found["replication right"].remedy == f'alter role "{name}" with replication'
        source.execute(sql.SQL("alter role {} replication").format(sql.Identifier(name)))
        assert levels(findings(source_dsn=dsn)) == {"tables": "error", **unread}
        source.execute("create publication pipeline for table orders")
        assert levels(findings(source_dsn=dsn)) == unread
        source.execute(sql.SQL("grant select on orders to {}").format(sql.Identifier(name)))
        assert levels(findings(source_dsn=dsn)) == {}
        source.execute("alter table orders enable row level security")
        assert findings(source_dsn=dsn)["snapshot rights"].text.startswith("row security hides rows of public.orders")
        assert levels(findings(database_dsn=dsn)) == {
            "pipeline schema": "error",
            "events table": "error",
            "same database": "warning",
        }
    finally:
        source.execute(sql.SQL("drop owned by {0}; drop role {0}").format(sql.Identifier(name)))


def test_rights_to_read_are_those_of_the_reading_role(
    findings: Check, source: psycopg.Connection, source_dsn: str
) -> None:
    reader = unique("reader")
    source.execute("create schema shop; create table shop.orders (id int primary key)")
    source.execute("alter table shop.orders enable row level security")
    source.execute(sql.SQL("create role {} login").format(sql.Identifier(reader)))
    try:
        dsn = make_conninfo(source_dsn, user=reader)
        found = findings(source_read_dsn=dsn)
        assert levels(found) == {"snapshot rights": "warning"}
        assert found["snapshot rights"].text == f'user "{reader}" may not use the schema of shop.orders'
        assert found["snapshot rights"].sql == [
            f'grant usage on schema shop to "{reader}"',
            f'grant select on shop.orders to "{reader}"',
            f'alter role "{reader}" with bypassrls',
        ]
        for statement in found["snapshot rights"].sql:
            source.execute(statement.encode())
        assert levels(findings(source_read_dsn=dsn)) == {}
    finally:
        source.execute(sql.SQL("drop owned by {0}; drop role {0}").format(sql.Identifier(reader)))


def test_what_the_first_snapshot_will_be(findings: Check, source: psycopg.Connection, source_dsn: str) -> None:
    assert findings()["snapshot"].text == "no existing rows to read"
    source.execute(
        "create table orders (id int primary key); create table notes (id int);"
        "insert into orders select generate_series(1, 150000); insert into notes values (1); analyze orders, notes;"
        "create table parted (id int primary key) partition by range (id);"
        "create table part partition of parted for values from (0) to (9)"
    )
    said = findings()["snapshot"]
    assert said.level == "ok"
    assert re.match(
        r"3 tables will be read: about 150,000 rows, 5\.\d MB; at a rough 50,000 rows/s that takes 3 s", said.text
    )
    assert re.search(
        r"about 5\d\.\d MB of disk in the pipeline database; public\.notes: without a key, so read in one", said.text
    )
    assert findings(snapshot_tables="public.p*")["snapshot"].text == "1 table will be read, without rows so far"
    assert findings(snapshot="never")["snapshot"].text.startswith("PIPELINE_SNAPSHOT is never: rows that tables have")
    with psycopg.connect(source_dsn) as other:
        other.execute("lock table orders in access exclusive mode")
        assert findings()["snapshot"].level == "warning"


def test_tables_that_cannot_be_read_are_not_counted(
    findings: Check, source: psycopg.Connection, source_dsn: str
) -> None:
    reader = unique("reader")
    source.execute("create table orders (id int primary key); create table secrets as select 1 as id")
    source.execute("create table parted (id int primary key) partition by range (id)")
    source.execute("create table part partition of parted for values from (0) to (9); insert into part values (1)")
    source.execute(
        sql.SQL("create role {0} login; grant select on orders, parted to {0}").format(sql.Identifier(reader))
    )
    try:
        found = findings(source_read_dsn=make_conninfo(source_dsn, user=reader))
        assert found["snapshot"].text == "1 table of 3 will be read, without rows so far"
    finally:
        source.execute(sql.SQL("drop owned by {0}; drop role {0}").format(sql.Identifier(reader)))


def test_which_tables_are_to_be_read_is_not_guessed(findings: Check, source_dsn: str, database_dsn: str) -> None:
    found = findings(database_dsn=make_conninfo(source_dsn, host="127.0.0.1", port="1"))
    assert found["snapshot"].text == "the tables to read are not known until the pipeline database answers"
    with psycopg.connect(database_dsn, autocommit=True) as conn:
        conn.execute("update pipeline.alembic_version set version_num = '0037'")
    found = findings(database_dsn=database_dsn)
    assert found["snapshot"].text == "the tables to read are not known until the pipeline database is migrated"


def test_ports_that_others_have_taken(findings: Check, source_dsn: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = findings(http_port=port)
        said = f"cannot listen at 127.0.0.1:{port}: Address already in use"
        assert levels(found) == {"port": "error"} and found["port"].text == f"HTTP {said}"
        assert found["port"].remedy == "stop what uses the port, or choose another PIPELINE_HTTP_PORT"
        found = findings(grpc_port=str(port))
        assert levels(found) == {"port": "error"} and found["port"].text == f"gRPC {said}"
        found = findings(http_port=port, database_dsn=make_conninfo(source_dsn, host="127.0.0.1", port="1"))
        assert levels(found) == {"pipeline database": "error"}
        assert found["port"].text.endswith("is known once the pipeline database answers")


def test_one_database_for_both(findings: Check, source_dsn: str) -> None:
    assert levels(findings(database_dsn=source_dsn)) == {"same database": "warning"}


def test_encodings(findings: Check, cluster: Cluster, source: psycopg.Connection) -> None:
    name = unique("ascii")
    with cluster.connect() as conn:
        conn.execute(
            sql.SQL(
                "create database {} encoding 'SQL_ASCII' locale 'C' locale_provider 'libc' template template0"
            ).format(sql.Identifier(name))
        )
    try:
        assert levels(findings(source_dsn=cluster.dsn(name))) == {"source encoding": "warning"}
        assert levels(findings(database_dsn=cluster.dsn(name)))["pipeline database encoding"] == "error"
    finally:
        cluster.drop(name)


def test_an_unknown_revision(findings: Check, cluster: Cluster, source: psycopg.Connection) -> None:
    with cluster.database("future") as dsn, psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("create schema pipeline; create table pipeline.alembic_version (version_num text)")
        conn.execute("insert into pipeline.alembic_version values ('9999')")
        found = findings(database_dsn=dsn)
    assert found["pipeline schema"].level == "error"
    assert found["pipeline schema"].remedy.startswith("run the version that made it")


def test_an_events_table_in_a_schema_that_is_not_there(findings: Check) -> None:
    found = findings(events_table="nowhere.events")
    assert found["events table"].level == "error"
    assert "PIPELINE_EVENTS_TABLE" in found["events table"].remedy


def test_nothing_is_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = check.run(load(data_dir=tmp_path / "data", http_port=free_port(), grpc_port="off"))
    assert {finding.level for finding in found} == {"ok"}
    assert list(tmp_path.iterdir()) == []
    status.show_findings(found)
    assert capsys.readouterr().out.rstrip().endswith("ready for `pipeline serve`: 0 errors, 0 warnings")


def test_an_accepted_error_is_a_warning(findings: Check) -> None:
    found = findings(accept=("events table",), events_table="nowhere.events")
    assert found["events table"].level == "warning"


def test_what_a_pooler_gives_away() -> None:
    assert pooler("source", in_between=False, shared=False) is None
    for in_between, shared, level in ((True, False, "warning"), (True, True, "error"), (False, True, "error")):
        finding = pooler("source", in_between, shared)
        assert finding
        assert finding.level == level


def test_a_session_tells_a_pooler_by_its_process_number(findings: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pooler announces its own numbers; here the server's answer is another than what it announced."""
    monkeypatch.setattr(poolers, "_backend_pid", lambda connection: -connection.info.backend_pid)
    found = findings()
    assert found["pooler"].level == "warning"
    assert "pgbouncer" in found["pooler"].remedy


def test_what_can_never_be_replicated_is_named_without_a_warning(findings: Check, source: psycopg.Connection) -> None:
    source.execute(
        "create table t (id int primary key); create unlogged table u (); create materialized view m as table t"
    )
    source.execute(
        "create foreign data wrapper w; create server s foreign data wrapper w; create foreign table f () server s"
    )
    found = findings()
    assert levels(found) == {}
    assert found["tables"].text == "1 match, all with a replica identity"
    assert found["not replicated"].text.endswith("foreign: public.f; materialized view: public.m; unlogged: public.u")
    assert "not replicated" not in findings(tables="public.t")


def test_routes_that_can_be_written(findings: Check) -> None:
    routes = '[{"tables": ["public.a"], "events_table": "public.a_events"}]'
    assert levels(findings(routes=routes)) == levels(findings()) == {}
    assert findings(routes=routes)["routes"].text == "1 to public.a_events"


@pytest.mark.parametrize(
    ("events_table", "tables", "level", "said"),
    [
        ("nowhere.events", "public.a", "error", "schema nowhere does not exist"),
        ("pg_catalog.pg_class", "public.a", "error", "it has no column"),
        ("public.a_events", "public.ab*", "warning", "route 2 never gets a change: route 1 comes first"),
    ],
)
def test_routes_that_cannot_be_or_never_are(
    findings: Check, events_table: str, tables: str, level: str, said: str, database_dsn: str
) -> None:
    first = {"tables": ["public.a*"], "events_table": "public.a_events"}
    routes = json.dumps([first, {"tables": [tables], "actions": ["insert"], "events_table": events_table}])
    found = check.run(load(database_dsn=database_dsn, routes=routes))
    told = [finding for finding in found if finding.name == "routes" and said in finding.text]
    assert [finding.level for finding in told] == [level]
    assert all(finding.remedy for finding in told)


@pytest.mark.parametrize(
    ("actions", "schedule", "warned"),
    [
        (["delete"], "*/5 * * * *", ["route 1 takes some actions only"]),
        (["delete"], "off", []),
        (["insert", "update", "delete", "truncate", "read"], "*/5 * * * *", []),
        (["message"], "*/5 * * * *", []),
        ([], "*/5 * * * *", []),
    ],
)
def test_a_route_that_divides_tables_between_lakes(
    database_dsn: str, actions: list[str], schedule: str, warned: list[str]
) -> None:
    routes = json.dumps([{"tables": ["public.a"], "actions": actions, "events_table": "public.a_events"}])
    found = check.run(load(database_dsn=database_dsn, routes=routes, export_schedule=schedule))
    told = [finding for finding in found if finding.name == "routes" and finding.level == "warning"]
    assert [finding.text.partition(":")[0] for finding in told] == warned


def test_a_route_to_a_table_of_another_owner(database_dsn: str) -> None:
    role = unique("other")
    with connections.connect(database_dsn, "pipeline database") as connection:
        table_setup.ensure(connection, EventsTable("public", "a_events"))
        for statement in (
            "create role {}",
            "grant usage on schema pipeline to {}",
            "grant select on all tables in schema pipeline to {}",
            "grant insert on a_events to {}",
        ):
            connection.execute(sql.SQL(statement).format(sql.Identifier(role)))
    routes = json.dumps([{"tables": ["public.a*"], "events_table": "public.a_events"}])
    found = check.run(load(database_dsn=make_conninfo(database_dsn, options=f"-c role={role}"), routes=routes))
    told = [finding for finding in found if finding.name == "routes"]
    assert [(finding.level, finding.text) for finding in told] == [("error", "this user may not write public.a_events")]


@pytest.mark.parametrize(("name", "said"), [("standby", "none of them is synchronous"), ("pg_receivewal", "")])
def test_standbys_of_the_pipeline_database_are_named(findings: Check, cluster: Cluster, name: str, said: str) -> None:
    with psycopg.connect(cluster.dsn("postgres"), replication="true", application_name=name) as session:
        start = session.pgconn.exec_(b"IDENTIFY_SYSTEM").get_value(0, 2) or b""
        session.pgconn.send_query(b"START_REPLICATION " + start)
        while not session.pgconn.get_result():
            continue
        found = findings().get("standbys")
        assert (found.level if found else "") == ("warning" if said else "")
        assert said in (found.text if found else "")
        session.pgconn.finish()


def test_clocks_that_differ_are_named(source_dsn: str, database_dsn: str) -> None:
    behind = "select pg_catalog.clock_timestamp() - interval '1 minute'"
    with (
        connections.connect(database_dsn, "pipeline database") as pipeline,
        connections.connect(source_dsn, "source", settings=session_settings.SERVER) as source,
    ):
        assert list(check.check_clocks(source, pipeline)) == []
        source.execute(
            f"create function public.clock_timestamp() returns timestamptz language sql as $${behind}$$".encode()
        )
        source.execute("set search_path = public, pg_catalog")
        [found] = check.check_clocks(source, pipeline)
        assert (found.level, found.name) == ("warning", "clocks")
        assert "differ by 60 s" in found.text
