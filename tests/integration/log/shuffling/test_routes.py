"""Routes move each change to its table, in order, once; they change at the watermark, and that is recorded."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from pipeline.cli.render import routes as render_routes
from pipeline.cli.render import status
from pipeline.client import EventLog
from pipeline.config import settings
from pipeline.config.routes import Route
from pipeline.errors import ConfigError
from pipeline.log.shuffling import routes as shuffle_routes
from pipeline.log.table import CHANNEL, DEFAULT, EventsTable
from pipeline.operate import metrics, retention
from pipeline.operate import routes as operate_routes
from pipeline.operate.repair import reader_role
from pipeline.operate.status import PipelineStatus
from pipeline.operate.verify import verify
from pipeline.postgres import connections
from pipeline.terminal import json_values
from tests.fixtures.postgres import Cluster, unique
from tests.fixtures.shuffling import move
from tests.fixtures.staged import (
    Change,
    Staged,
    Table,
    create,
    delete,
    insert,
    message,
    read,
    staging_of,
    truncate,
    update,
)
from tests.fixtures.waiting import eventually

AUDIT = EventsTable("public", "audit_events")
GONE = EventsTable("public", "gone")
ROUTES = (
    Route(tables=("public.audit_*", ".note*"), events_table=str(AUDIT)),
    Route(actions=("delete", "truncate"), events_table=str(GONE)),
)
TABLES = (Table("orders"), Table("audit_log"), Table("leaf", root="orders"))


class Routed:
    """Staged transactions, and a shuffler of these settings at a time."""

    def __init__(self, staged: Staged) -> None:
        self.staged = staged
        self.log = staged.connection

    def shuffle(self, *routes: Route, default: EventsTable = DEFAULT) -> None:
        move(self.staged.shuffler(default, routes=routes))

    def cut_off(self, statements: int, *routes: Route) -> bool:
        """Shuffle until its session is ended before its next statement but this many; False when it was done before."""
        shuffler = self.staged.shuffler(routes=routes)
        connection = self.staged.shufflers.connection
        assert connection is not None
        execute, left = connection.execute, itertools.count(statements, -1)

        def counted(*arguments: Any) -> Any:
            if next(left) == 0:
                self.log.execute("select pg_terminate_backend(%s, 5000)", [connection.info.backend_pid])
            return execute(*arguments)

        connection.execute = counted  # type: ignore[assignment, method-assign]
        try:
            move(shuffler)
        except psycopg.OperationalError:
            return True
        finally:
            connection.execute = execute  # type: ignore[method-assign]
        return False

    def rows(self, table: EventsTable, what: str = "seq, record ->> 'id'") -> list[tuple[Any, ...]]:
        return self.log.execute(f"select {what} from {table} order by seq").fetchall()

    def union(self, *tables: EventsTable) -> list[tuple[Any, ...]]:
        """Every event of these tables by its place at the source."""
        all_of = " union all ".join(f"select commit_lsn, commit_idx, record ->> 'id' from {each}" for each in tables)
        return self.log.execute(f"{all_of} order by 1, 2").fetchall()


@pytest.fixture
def routed(cluster: Cluster) -> Iterator[Routed]:
    with staging_of(cluster, *TABLES) as staged:
        yield Routed(staged)


def mixed(first: int) -> tuple[Change, ...]:
    """Five changes: two for the default table, two for the audit table, one for what is gone."""
    return (
        insert("orders", id=first),
        insert("audit_log", id=first + 1),
        update("orders", id=first + 2),
        delete("orders", id=first + 3),
        delete("audit_log", id=first + 4),
    )


def test_each_change_goes_where_the_first_route_that_matches_says(routed: Routed) -> None:
    routed.staged.commit(*mixed(1), truncate("leaf"), message("x"))
    routed.shuffle(*ROUTES)
    assert routed.rows(DEFAULT) == [(1, "1"), (2, "3")]
    assert routed.rows(AUDIT, "seq, action") == [(1, "insert"), (2, "delete"), (3, "message")]
    assert routed.rows(GONE, "seq, action, source_table_name") == [(1, "delete", "orders"), (2, "truncate", "leaf")]


def test_a_truncate_of_a_leaf_goes_by_its_root(routed: Routed) -> None:
    routed.staged.commit(truncate("leaf"))
    routed.shuffle(Route(tables=("public.leaf",), events_table=str(GONE)))
    assert routed.rows(DEFAULT, "source_table_name") == [("leaf",)]
    routed.staged.commit(truncate("leaf"))
    routed.shuffle(Route(tables=("public.orders",), actions=("truncate",), events_table=str(GONE)))
    assert routed.rows(GONE, "source_table_name") == [("leaf",)]


def test_each_routed_table_has_gapless_seqs_and_whole_transactions(routed: Routed) -> None:
    shuffler = routed.staged.shuffler(routes=ROUTES)
    for number in range(20):
        routed.staged.commit(*mixed(number * 5))
        if number % 3 == 0:
            shuffler.step()
            counts = [len(routed.rows(table)) for table in (DEFAULT, AUDIT, GONE)]
            assert counts == [2 * (number + 1), 2 * (number + 1), number + 1]
    move(shuffler)
    for table in (DEFAULT, AUDIT, GONE):
        assert [seq for seq, _ in routed.rows(table)] == list(range(1, len(routed.rows(table)) + 1))
    assert [record for _, _, record in routed.union(DEFAULT, AUDIT, GONE)] == [str(each) for each in range(100)]


def test_counts_and_newest_seqs_are_kept_for_each_table(routed: Routed) -> None:
    routed.log.execute(f"listen {CHANNEL}")
    routed.staged.commit(*mixed(1))
    routed.staged.commit(delete("orders", id=6))
    routed.shuffle(*ROUTES)
    query = "select name, last_seq, events from pipeline.events_tables order by name"
    assert routed.log.execute(query).fetchall() == [(str(AUDIT), 2, 2), (str(GONE), 2, 2), (str(DEFAULT), 2, 2)]
    progress = routed.log.execute("select last_seq, events, committed_at from pipeline.shuffle_progress").fetchone()
    newest = routed.rows(GONE, "committed_at")[-1][0]
    assert progress == (2, 6, newest)
    heard = [json.loads(note.payload) for note in routed.log.notifies(timeout=60, stop_after=3)]
    assert {(note["table"], note["seq"]) for note in heard} == {(str(each), 2) for each in (DEFAULT, AUDIT, GONE)}


def test_a_change_of_routes_takes_effect_at_the_watermark_and_is_recorded(
    routed: Routed, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "pipeline.log.shuffling.routes")
    for routes in ((), ROUTES, ROUTES[1:], ROUTES[1:], ()):
        routed.staged.commit(*mixed(routed.staged.lsn))
        routed.shuffle(*routes)
    assert len(routed.union(DEFAULT, AUDIT, GONE)) == 25
    held = routed.log.execute(
        "select after_lsn, jsonb_array_length(routes), first_seqs from pipeline.routes order by id"
    ).fetchall()
    assert held == [
        (0, 0, {str(DEFAULT): 1}),
        (100, 2, {str(DEFAULT): 6, str(AUDIT): 1, str(GONE): 1}),
        (200, 1, {str(DEFAULT): 8, str(GONE): 2}),
        (400, 0, {str(DEFAULT): 14}),
    ]
    logged = [vars(record)["after_lsn"] for record in caplog.records if hasattr(record, "after_lsn")]
    assert logged == ["0/0", "0/64", "0/C8", "0/190"]


def test_what_a_failed_move_wrote_is_written_once_by_the_next(routed: Routed) -> None:
    routed.staged.commit(*mixed(1))
    shuffler = routed.staged.shuffler(routes=ROUTES)
    shuffler.step()
    routed.log.execute(f"alter table {GONE} add constraint no_14 check (record ->> 'id' <> '14')")
    routed.staged.commit(*mixed(11))
    shuffler.step()
    assert shuffler.poison is not None
    assert len(routed.union(DEFAULT, AUDIT, GONE)) == 5
    routed.log.execute(f"alter table {GONE} drop constraint no_14")
    eventually(lambda: shuffler.step() == 5)
    assert len(routed.union(DEFAULT, AUDIT, GONE)) == 10


def test_interrupted_shufflers_with_new_routes_lose_and_repeat_nothing(routed: Routed) -> None:
    """Each is ended by the server before one of its statements, most of them inside of a move."""
    chosen = random.Random(6)
    cut = 0
    for number in range(24):
        for _ in range(2):
            routed.staged.commit(*mixed(number), *mixed(number))
        routes = chosen.sample([*ROUTES, Route(actions=("update",), events_table=str(AUDIT))], chosen.randrange(4))
        cut += routed.cut_off(chosen.randrange(40), *routes)
    routed.shuffle()
    assert cut > 6
    places = [place[:2] for place in routed.union(DEFAULT, AUDIT, GONE)]
    assert places == [(100 * lsn, idx) for lsn in range(1, 49) for idx in range(10)]
    assert not any(broken for _, broken in verified(routed).values())


def test_two_tables_of_one_name_have_partitions_of_their_own(routed: Routed) -> None:
    routed.log.execute("create schema a; create schema b")
    names = ("events", "x" * 50, "x" * 50 + "y", "é" * 27)
    tables = [EventsTable(schema, name) for schema in ("a", "b", "public") for name in names]
    routes = [Route(tables=(f".note{n}",), events_table=str(table)) for n, table in enumerate(tables)]
    for n in range(len(tables)):
        routed.staged.relate(f"note{n}")
    routed.staged.commit(*(Change("message", f"note{n}", {"id": str(n)}) for n in range(len(tables))))
    routed.shuffle(*routes)
    assert [routed.rows(table) for table in tables] == [[(1, str(n))] for n in range(len(tables))]


def test_consumers_follow_the_default_table(routed: Routed) -> None:
    routed.shuffle()
    client = create(routed.log)
    routed.staged.commit(*mixed(1))
    routed.shuffle(*ROUTES)
    assert [(item.pk, item.seq) for item in client.receive()] == [("1", 1), ("3", 2)]


OTHER = EventsTable("public", "other_events")


def test_another_default_table_begins_at_the_watermark(routed: Routed) -> None:
    routed.staged.moved(*mixed(1))
    routed.staged.commit(*mixed(6))
    routed.shuffle(default=OTHER)
    assert len(routed.rows(DEFAULT)) == len(routed.rows(OTHER)) == 5
    assert routed.log.execute("select last_seq, events from pipeline.shuffle_progress").fetchone() == (5, 10)
    assert routed.rows(EventsTable("pipeline", "events")) == routed.rows(OTHER)


@pytest.mark.parametrize("follower", ["consumer", "lake"])
def test_a_new_default_table_is_refused_while_the_old_one_has_a_reader(routed: Routed, follower: str) -> None:
    routed.staged.moved(*mixed(1))
    if follower == "consumer":
        create(routed.log, "mine", kind="cursor")
    else:
        routed.log.execute(
            "insert into pipeline.lakes (id, directory, events_table) values (gen_random_uuid(), 'mine', %s)",
            [str(DEFAULT)],
        )
    with pytest.raises(ConfigError, match=rf'{follower} "mine" would lose its place'):
        routed.shuffle(default=OTHER)
    with (
        connections.connect(routed.staged.dsn, "pipeline database") as boot,
        pytest.raises(ConfigError, match=rf'{follower} "mine" would lose its place'),
    ):
        shuffle_routes.prepare(boot, routed.staged.source, OTHER, ())
    routed.staged.moved(*mixed(6))
    assert len(routed.rows(DEFAULT)) == 10


def verified(routed: Routed) -> dict[str, tuple[int, int]]:
    """Of each check of `verify`: how much it looked at, and how much is broken."""
    config = settings.load(database_dsn=routed.staged.dsn, source_dsn="host=nowhere.invalid")
    found = verify.run(config, 1, 1_000, lambda *_: None)
    return {check.name: (check.checked, check.broken) for check in found.checks}


def test_verify_reads_every_table_and_all_of_them_together(routed: Routed) -> None:
    for routes in (ROUTES, (), ROUTES[1:]):
        routed.staged.commit(*mixed(1))
        routed.shuffle(*routes)
    found = verified(routed)
    assert found["all tables"] == (15, 0)
    assert found["order"] == (10, 0)
    assert found[f"events ({GONE})"] == (3, 0)
    assert not any(broken for _, broken in found.values())


def test_rows_of_a_snapshot_follow_the_routes_and_pass_verify(routed: Routed) -> None:
    reads = Route(tables=("public.orders",), actions=("read",), events_table=str(AUDIT))
    routed.staged.commit(read("orders", id=1), read("audit_log", id=2), read("orders", id=3))
    routed.staged.commit(*mixed(4))
    routed.shuffle(reads)
    assert routed.rows(AUDIT) == [(1, "1"), (2, "3")]
    assert routed.rows(DEFAULT)[:1] == [(1, "2")]
    routed.log.execute(f"update {AUDIT} set commit_idx = 7 where seq = 2")
    assert not any(broken for _, broken in verified(routed).values())


@pytest.mark.parametrize(
    ("damage", "broken"),
    [
        (f"update {AUDIT} set action = 'insert' where seq = 1", True),
        (f"update {DEFAULT} set action = 'insert' where seq = 1", True),
        (f"update {DEFAULT} set action = 'insert', commit_idx = 0 where seq = 1", True),
        (f"update {AUDIT} set commit_idx = 2 where seq = 2", True),
        (f"delete from {DEFAULT} where seq = 3", True),
        (f"update {AUDIT} set commit_idx = 9 where seq = 2", False),
    ],
)
def test_verify_finds_what_is_wrong_beside_what_was_read(routed: Routed, damage: str, broken: bool) -> None:
    routed.staged.commit(read("orders", id=1), read("audit_log", id=2), read("orders", id=3))
    routed.staged.commit(insert("audit_log", id=4), insert("audit_log", id=5), insert("audit_log", id=6))
    routed.shuffle(Route(tables=("public.orders",), events_table=str(AUDIT)))
    routed.log.execute(damage)
    assert (verified(routed)["all tables"][1] > 0) is broken


@pytest.mark.parametrize(
    ("damage", "check"),
    [
        (f"delete from {AUDIT} where seq = 1", f"events ({AUDIT})"),
        (f"delete from {AUDIT} where seq = 1", "all tables"),
        (f"insert into {DEFAULT} overriding system value select * from {GONE} where seq = 9", "all tables"),
        (f"update {GONE} set commit_lsn = 100000 where seq = 2", f"watermark ({GONE})"),
        (f"update {AUDIT} set commit_lsn = 150 where seq = 1", f"order ({AUDIT})"),
    ],
)
def test_verify_finds_what_is_wrong_between_the_tables(routed: Routed, damage: str, check: str) -> None:
    routed.staged.commit(*mixed(1))
    routed.staged.commit(*mixed(1))
    routed.shuffle(*ROUTES)
    routed.log.execute(f"update {GONE} set seq = 9 where seq = 1")
    routed.log.execute(damage)
    assert verified(routed)[check][1] > 0


def test_retention_drops_from_each_table_and_consumers_hold_the_default(routed: Routed) -> None:
    routed.staged.commit(*mixed(1))
    routed.staged.commit(*mixed(6))
    routed.shuffle(*ROUTES)
    create(routed.log, kind="cursor")
    for table in (DEFAULT, AUDIT, GONE):
        routed.log.execute(f"update {table} set inserted_at = now() - interval '1 day'")
    config = settings.load(database_dsn=routed.staged.dsn, retention="1h", export_schedule="off")
    now = retention.read(config, routed.log)
    assert now is not None
    assert [holder.kind for holder in now.held_by] == ["consumer"]
    assert {each.events_table: each.held_by for each in now.beside} == {str(AUDIT): [], str(GONE): []}
    assert retention.run(config, lambda: False).rows == 3 + 1
    assert [seq for seq, _ in routed.rows(DEFAULT)] == [1, 2, 3, 4]
    assert [seq for seq, _ in routed.rows(AUDIT)] == [4]
    assert not any(broken for _, broken in verified(routed).values())


def test_what_people_see_of_routes(routed: Routed, capsys: pytest.CaptureFixture[str]) -> None:
    for routes in ((), ROUTES):
        routed.staged.commit(*mixed(1))
        routed.shuffle(*routes)
    listed = json.dumps([route.model_dump(mode="json") for route in ROUTES])
    found = operate_routes.collect(settings.load(routes=listed), routed.log)
    assert not found.pending
    shown = json_values.as_json(found)
    assert shown["in_force"]["routes"] == json.loads(listed)
    assert [held["after_lsn"] for held in shown["history"]] == ["0/64", "0/0"]
    assert [(table["name"], table["events"]) for table in shown["tables"]] == [
        (str(AUDIT), 2),
        (str(GONE), 1),
        (str(DEFAULT), 7),
    ]
    render_routes.show_routing(operate_routes.collect(settings.load(), routed.log))
    status.show_status(PipelineStatus(revision="0008", events_tables=found.tables), everything=True)
    text = capsys.readouterr().out
    assert "they apply when the server next starts" in text
    assert text.count(str(AUDIT)) >= 4
    assert (
        f'pipeline_events_table_events_total{{table="{DEFAULT}"}} 7.0'
        in metrics.render(PipelineStatus(events_tables=found.tables)).decode()
    )


def test_a_reader_role_may_read_every_events_table(routed: Routed) -> None:
    routed.staged.commit(*mixed(1))
    routed.shuffle(*ROUTES)
    name = unique("reader")
    config = settings.load(database_dsn=routed.staged.dsn)
    try:
        assert str(GONE) in reader_role.ensure(config, name)[0]
        log = EventLog(make_conninfo(routed.staged.dsn, user=name), str(AUDIT))
        assert [(event.seq, event.action) for event in log.read(0)] == [(1, "insert"), (2, "delete")]
    finally:
        routed.log.execute(f"drop owned by {name}; drop role {name}")
