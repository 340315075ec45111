"""From a commit to its events: order inside a transaction, what is published, which slot is used, idle WAL."""

from __future__ import annotations

import json
import uuid
from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Self

import psycopg
import pytest

from pipeline.capture.catchup.part_registry import PartRegistry
from pipeline.capture.replication import prepare, worker
from pipeline.capture.replication.confirm_rule import IDLE_BYTES, ConfirmPace, ConfirmRule
from pipeline.capture.source import sources
from pipeline.config import settings
from pipeline.config.settings import Config
from pipeline.errors import SlotLostError, SlotUnusableError, SourceChangedError
from pipeline.server import schedule
from pipeline.wal.messages import LogicalMessage
from tests.fixtures import test_decoding
from tests.fixtures.postgres import Cluster
from tests.fixtures.server import run_command
from tests.fixtures.slots import wait_until_left
from tests.fixtures.stage import Stage
from tests.fixtures.waiting import eventually

Event = dict[str, Any]
WRITERS, EACH = 8, 25
LATEST_WAL = "select pg_current_wal_lsn() - '0/0'"
SOME_WAL = "insert into {} select repeat('x', 1000) from generate_series(1, 200)"


class Replicated(Stage):
    """Streams inside of the block."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def events(self) -> list[Event]:
        """Everything committed so far, once it has arrived."""
        events = self.rows("select * from public.sequin_events order by seq")
        return [event for event in events if event["source_table_name"] != "mark"]

    def confirmed(self) -> int:
        query = "select confirmed_flush_lsn - '0/0' from pg_replication_slots where slot_name = %s"
        return int(one(self.source, query, self.config.slot))


def one(connection: psycopg.Connection, query: str, *values: object) -> Any:
    row = connection.execute(query, values).fetchone()
    return row and row[0]


@pytest.fixture
def config(source_dsn: str, database_dsn: str, slot_name: str) -> Config:
    return settings.load(source_dsn=source_dsn, database_dsn=database_dsn, slot=slot_name)


@pytest.fixture
def source(source_dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute("create table t (id int primary key, note text)")
        yield connection


@pytest.fixture
def replicated(config: Config, source: psycopg.Connection) -> Iterator[Replicated]:
    with Replicated(config) as running:
        yield running


def column(events: list[Event], *names: str) -> list[Any]:
    return [event[names[0]] if len(names) == 1 else tuple(event[name] for name in names) for event in events]


def test_three_updates_of_one_row_are_three_events_of_one_transaction(replicated: Replicated):
    replicated.source.execute("insert into t values (1, '')")
    with replicated.source.transaction():
        for note in "abc":
            replicated.source.execute("update t set note = %s where id = 1", [note])
    events = replicated.events()[1:]
    assert len({*column(events, "commit_lsn")}) == 1
    assert column(events, "commit_idx", "action", "record_pk") == [(idx, "update", "1") for idx in range(3)]
    assert [event["record"]["note"] for event in events] == ["a", "b", "c"]


def test_changes_have_one_total_order(replicated: Replicated):
    def write(writer: int) -> None:
        with psycopg.connect(replicated.config.source, autocommit=True) as source:
            for number in range(EACH):
                key = (writer + 1) * 1000 + number
                source.execute("insert into t values (%s), (%s)", [key, -key])

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(write, range(WRITERS)))
    positions = column(replicated.events(), "commit_lsn", "commit_idx")
    assert len(positions) == WRITERS * EACH * 2
    assert positions == sorted(set(positions))


def test_annotations_mark_what_comes_after_them_and_take_a_commit_idx(replicated: Replicated):
    emit = "select pg_logical_emit_message(true, %s, %s)"
    with replicated.source.transaction():
        replicated.source.execute("insert into t values (1)")
        replicated.source.execute(emit, ["pipeline:annotations", '{"by": "me"}'])
        replicated.source.execute("insert into t values (2)")
        replicated.source.execute(emit, ["sequin:transaction_annotations.clear", ""])
        replicated.source.execute("insert into t values (3)")
    replicated.source.execute("insert into t values (4)")
    events = replicated.events()
    assert column(events, "record_pk", "commit_idx") == [("1", 0), ("2", 2), ("3", 4), ("4", 0)]
    assert column(events, "transaction_annotations") == [None, {"by": "me"}, None, None]


@pytest.mark.parametrize("rows", [1, 1500], ids=["one row", "many in one record"])
def test_a_message_of_a_savepoint_stays_before_the_change_behind_it(replicated: Replicated, rows: int):
    """The LSN of a message is that of the next record: Postgres sends the change of the other subtransaction first."""
    keys = [str(key) for key in range(2, 2 + rows)]
    with replicated.source.transaction():
        replicated.source.execute("insert into t values (1)")
        with replicated.source.transaction():
            replicated.source.execute(
                "select pg_logical_emit_message(true, 'pipeline:annotations', '{\"by\": \"me\"}')"
            )
        with replicated.source.cursor() as cursor, cursor.copy("copy t (id) from stdin") as copy:
            for key in keys:
                copy.write_row([key])
    events = replicated.events()
    expected = [("1", 0), *((key, idx) for idx, key in enumerate(keys, 2))]
    assert column(events, "record_pk", "commit_idx") == expected
    assert column(events, "transaction_annotations") == [None, *[{"by": "me"}] * len(keys)]


@pytest.mark.parametrize(
    ("content", "record"),
    [
        (b"hello", {"content": "hello"}),
        ("žluť".encode(), {"content": "žluť"}),
        (b"\xff\x00", {"content_base64": b64encode(b"\xff\x00").decode()}),
        (b"a\x00b", {"content_base64": b64encode(b"a\x00b").decode()}),
    ],
)
def test_a_message_is_an_event_without_a_table(replicated: Replicated, content: bytes, record: dict[str, str]):
    replicated.source.execute("select pg_logical_emit_message(true, 'note', %s::bytea)", [content])
    replicated.source.execute("select pg_logical_emit_message(false, 'note', %s::bytea)", [content])
    (event,) = replicated.events()
    assert event["record"] == record
    assert (event["source_table_oid"], event["source_table_schema"], event["source_table_name"]) == (0, "", "note")
    assert (event["action"], event["record_pk"], event["commit_idx"]) == ("message", "", 0)


def test_full_identity_has_the_primary_key_and_the_old_values(replicated: Replicated, source: psycopg.Connection):
    source.execute("alter table t replica identity full")
    source.execute("insert into t values (7, 'old')")
    source.execute("update t set note = 'new'")
    source.execute("delete from t")
    _, updated, deleted = replicated.events()
    assert (updated["record_pk"], updated["changes"]) == ("7", {"note": "old"})
    assert updated["record"] == deleted["record"] == {"id": 7, "note": "new"}
    assert (deleted["record_pk"], deleted["action"]) == ("7", "delete")


def test_a_partition_is_reported_as_its_root_a_truncated_leaf_as_itself(config: Config, source: psycopg.Connection):
    source.execute("""
        create table parts (id int, part int, primary key (part, id)) partition by list (part);
        create table parts_1 partition of parts for values in (1);
        create table parts_2 partition of parts for values in (2);
    """)
    root, leaf = (int(one(source, f"select '{name}'::regclass::oid::bigint")) for name in ("parts", "parts_1"))
    with Replicated(config) as replicated:
        source.execute("insert into parts values (5, 1)")
        source.execute("update parts set part = 2")
        source.execute("truncate parts_1")
        events = replicated.events()
    where = column(events, "action", "source_table_oid", "source_table_name", "record_pk")
    assert where == [
        ("insert", root, "parts", "[5,1]"),
        ("delete", root, "parts", "[5,1]"),
        ("insert", root, "parts", "[5,2]"),
        ("truncate", leaf, "parts_1", ""),
    ]


def test_a_keyless_table_stays_writable_and_its_inserts_arrive(config: Config, source: psycopg.Connection):
    source.execute("create table keyless (note text)")
    with Replicated(config) as replicated:
        source.execute("insert into keyless values ('a'), ('b')")
        assert source.execute("update keyless set note = 'c' where note = 'a'").rowcount == 1
        assert source.execute("delete from keyless where note = 'b'").rowcount == 1
        source.execute("truncate keyless")
        events = replicated.events()
    assert column(events, "action", "record") == [
        ("insert", {"note": "a"}),
        ("insert", {"note": "b"}),
        ("truncate", {}),
    ]


def test_tables_that_come_later_are_added_and_move_when_they_get_a_key(replicated: Replicated):
    replicated.source.execute("create table later (id int not null)")
    schedule.publish_new_tables(replicated.config)
    replicated.source.execute("insert into later values (1)")
    replicated.source.execute("alter table later add primary key (id)")
    schedule.publish_new_tables(replicated.config)
    replicated.source.execute("update later set id = 2")
    events = replicated.events()
    assert column(events, "action", "record_pk", "changes") == [("insert", "", None), ("update", "2", {"id": 1})]


def test_our_own_tables_are_never_published_where_both_databases_are_one(config: Config):
    shared = config.with_databases(config.database, config.database)
    with Replicated(shared) as replicated:
        replicated.source.execute("create table mine (id int primary key)")
        schedule.publish_new_tables(shared)
        replicated.source.execute("insert into mine values (1)")
        for _ in range(3):  # what the first round wrote would come back as events in the next
            assert column(replicated.events(), "source_table_name", "record_pk") == [("mine", "1")]
        published = replicated.source.execute(
            "select schemaname || '.' || tablename from pg_publication_tables"
        ).fetchall()
        assert published == [("public.mine",)]


def test_messages_with_prefixes_of_their_own_leave_nothing_behind(replicated: Replicated):
    replicated.source.execute(
        "select pg_logical_emit_message(true, 'job ' || i, 'c' || i) from generate_series(1, 3000) i"
    )
    replicated.source.execute("select pg_logical_emit_message(true, '', 'none')")
    events = column(replicated.events(), "action", "source_table_name", "record_pk", "record")
    numbered = [("message", f"job {n}", "", {"content": f"c{n}"}) for n in range(1, 3001)]
    assert events == [*numbered, ("message", "", "", {"content": "none"})]
    assert one(replicated.log, "select count(*) from pipeline.relations where relation_oid = 0") == 1


OLD_PREFIX = """insert into pipeline.relations (source_id, epoch, relation_oid, relation_schema, relation_name,
    table_oid, table_schema, table_name, replica_identity, columns, key_columns, from_lsn)
    select id, epoch, 0, '', 'old', 0, '', 'old', 'n', '[]', '{}', 0 from pipeline.sources"""


def test_messages_keep_their_names_beside_prefixes_of_an_older_server(replicated: Replicated):
    replicated.log.execute(OLD_PREFIX)
    for prefix in ("new", "old", ""):
        replicated.source.execute("select pg_logical_emit_message(true, %s, 'x')", [prefix])
    assert column(replicated.events(), "source_table_name", "record_pk") == [("new", ""), ("old", ""), ("", "")]


def test_the_worker_of_a_part_takes_no_stored_prefix_for_another(replicated: Replicated):
    replicated.log.execute(OLD_PREFIX)
    replicated.stop()
    stored = sources.find(replicated.log, None)
    assert stored is not None
    registry = PartRegistry(replicated.source, replicated.log, stored, (), 1, "no_slot_is_read")
    admitted = registry.admit(LogicalMessage(True, 0, "new", b"x"), None, "0")
    assert admitted is not None
    assert one(replicated.log, "select table_name from pipeline.relations where id = %s", admitted.id) == ""


def test_messages_are_routed_by_prefix_and_parked_by_name(config: Config):
    routes = [{"tables": [".job*"], "events_table": "public.jobs"}]
    routed = config.model_copy(update={"routes": settings.load(routes=json.dumps(routes)).routes})
    with Stage(routed, routes=routed.routes, on_poison="park") as stage:
        stage.start()
        stage.run("create table t (id int primary key)", "insert into t values (1)")
        stage.arrive()
        stage.log.execute("alter table public.jobs add check (record ->> 'content' <> 'job 3')")
        stage.run(
            "select pg_logical_emit_message(true, p, p)"
            " from unnest(array['job 1', 'mail', 'job 2', 'job 3', 'job 1']) p"
        )
        stage.arrive()
        written = (
            "select source_table_name, record ->> 'content' from {}"
            " where action = 'message' and source_table_name <> 'mark' order by seq"
        )
        assert stage.log.execute(written.format("public.sequin_events")).fetchall() == [("mail", "mail")]
        jobs = stage.log.execute(written.format("public.jobs")).fetchall()
        assert [name for name, content in jobs if content] == ["job 1", "job 2", "job 1"]
        assert one(stage.log, "select table_name from pipeline.dead_letters") == "job 3"


@pytest.mark.parametrize("published", ["all tables", "tables in schema public"])
def test_our_own_tables_are_never_captured_whatever_a_publication_says(published: str, config: Config):
    shared = config.with_databases(config.database, config.database)
    with psycopg.connect(config.database, autocommit=True) as owner:
        owner.execute("create table mine (id int primary key)")
        owner.execute(f"create publication {config.publication} for {published}")
    with Replicated(shared) as replicated:
        for number in (1, 2):
            replicated.start()
            with replicated.source.transaction():
                replicated.source.execute("update public.consumer_records set queued_seq = queued_seq")
                replicated.source.execute("insert into mine values (%s)", [number])
                replicated.source.execute("update pipeline.sources set options = options")
            for _ in range(3):
                expected = [("mine", str(n)) for n in range(1, number + 1)]
                assert column(replicated.events(), "source_table_name", "record_pk") == expected
            replicated.stop()  # what was written since is replayed


@pytest.mark.parametrize("where", ["unpublished table", "other database"])
def test_the_position_advances_while_all_traffic_is_elsewhere(
    where: str, config: Config, source: psycopg.Connection, cluster: Cluster
):
    source.execute("create table noise (note text)")
    with (
        Replicated(config.model_copy(update={"tables": ("public.t",)})) as replicated,
        cluster.database("elsewhere") as other,
    ):
        with psycopg.connect(other, autocommit=True) as elsewhere:
            before = replicated.confirmed()
            writer = source if where == "unpublished table" else elsewhere
            writer.execute("create table if not exists noise (note text)")
            writer.execute(SOME_WAL.format("noise"))
        target = one(source, LATEST_WAL) - IDLE_BYTES
        assert target > before
        eventually(lambda: replicated.confirmed() >= target)
        assert replicated.events() == []


def test_an_idle_source_advances_by_the_timer(
    config: Config, source: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(worker, "ConfirmRule", partial(ConfirmRule, pace=ConfirmPace(idle=0.2)))
    source.execute("create table noise (note text)")
    with Replicated(config.model_copy(update={"tables": ("public.t",)})) as replicated:
        source.execute("insert into noise values ('x')")
        target = one(source, LATEST_WAL)
        eventually(lambda: replicated.confirmed() >= target)


def test_a_lost_slot_is_a_clear_stop_and_no_new_one_is_made(config: Config, source: psycopg.Connection, tmp_path: Path):
    with Replicated(config) as replicated:
        source.execute("insert into t values (1)")
        replicated.events()
    wait_until_left(config.source, config.slot)
    with psycopg.connect(config.database) as log:
        position = one(log, "select '0/0'::pg_lsn + position from pipeline.replication_progress")
    source.execute("select pg_drop_replication_slot(%s)", [config.slot])
    dsns = {"source_dsn": config.source, "database_dsn": config.database, "slot": config.slot}
    ended = run_command("serve", folder=tmp_path, **dsns)
    assert ended.returncode == 1
    assert f'slot "{config.slot}" does not exist, but we have stored up to {position}' in ended.stderr
    assert one(source, "select count(*) from pg_replication_slots where slot_name = %s", config.slot) == 0


def test_a_slot_confirmed_by_another_program_is_a_clear_stop(config: Config, source: psycopg.Connection):
    with Replicated(config) as replicated:
        replicated.events()
    source.execute("insert into t values (1)")
    wait_until_left(config.source, config.slot)
    source.execute("select pg_replication_slot_advance(%s, pg_current_wal_lsn())", [config.slot])
    with pytest.raises(SlotLostError, match=rf'^slot "{config.slot}" was confirmed up to .* by another program'):
        refuse(config)


def test_another_source_id_for_the_same_slot_is_refused(config: Config):
    with Replicated(config) as replicated:
        replicated.events()
    with psycopg.connect(config.database) as pipeline:
        known = one(pipeline, "select id from pipeline.sources")
    other = config.model_copy(update={"source_id": uuid.uuid4()})
    with pytest.raises(SourceChangedError, match=rf"are stored for {known}: set PIPELINE_SOURCE_ID={known}; or"):
        refuse(other)
    refuse(config.model_copy(update={"source_id": known}))


def refuse(config: Config) -> None:
    connections = prepare.connect(config, name="test")
    with connections[0], connections[1]:
        prepare.refuse_unfit(config, *connections)


@pytest.fixture
def foreign_slot(cluster: Cluster, config: Config) -> Iterator[None]:
    with cluster.connect() as elsewhere:
        elsewhere.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [config.slot])
        yield
        elsewhere.execute("select pg_drop_replication_slot(%s)", [config.slot])


@pytest.mark.usefixtures("foreign_slot")
def test_a_slot_of_another_database_is_refused(config: Config):
    with pytest.raises(SlotUnusableError, match=rf'^slot "{config.slot}" belongs to database postgres'):
        refuse(config)


def test_a_two_phase_slot_is_refused(config: Config, source: psycopg.Connection):
    source.execute("select pg_create_logical_replication_slot(%s, 'pgoutput', false, true)", [config.slot])
    with pytest.raises(SlotUnusableError, match=rf'^slot "{config.slot}" was made with two_phase'):
        refuse(config)


class TestOnDebians:
    """The one Postgres here with a second output plugin."""

    @pytest.fixture
    def source_cluster(self, clusters: Callable[[int], Cluster]) -> Cluster:
        return clusters(15)

    def test_a_slot_of_another_plugin_is_refused(self, config: Config, source: psycopg.Connection):
        test_decoding.make_slot(source, config.slot)
        with pytest.raises(SlotUnusableError, match="uses the plugin test_decoding, not pgoutput"):
            refuse(config)
