"""Consumers of another events table than the default one: items, positions, and what becomes of them with the table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pipeline.config.routes import Route
from pipeline.consumers import render
from pipeline.consumers import status as consumer_status
from pipeline.log import dead_letters
from pipeline.log.readers import ReaderRegistry
from pipeline.log.table import DEFAULT, EventsTable
from pipeline.operate import metrics
from pipeline.operate.status import PipelineStatus
from pipeline.postgres import connections
from tests.fixtures.postgres import Cluster
from tests.fixtures.shuffling import move
from tests.fixtures.staged import Change, Staged, Table, create, delete, insert, staging_of, truncate, update

AUDIT = EventsTable("public", "audit_events")
ROUTE = Route(tables=("public.audit",), events_table=str(AUDIT))


@pytest.fixture(scope="module")
def staging(cluster: Cluster) -> Iterator[Staged]:
    with staging_of(cluster, Table("t"), Table("audit")) as made:
        yield made


class Routed:
    """Route changes of `audit` to a separate events table, unless `routes` says otherwise."""

    def __init__(self, staged: Staged) -> None:
        self.staged = staged
        self.log = staged.connection

    def moved(self, *changes: Change, routes: tuple[Route, ...] = (ROUTE,)) -> None:
        if changes:
            self.staged.commit(*changes)
        move(self.staged.shuffler(routes=routes))

    def status(self, name: str = "c") -> consumer_status.ConsumerStatus:
        (found,) = consumer_status.find_consumers(self.log, name)
        return found


@pytest.fixture
def routed(staged: Staged) -> Routed:
    staged.connection.execute(f"drop table if exists {AUDIT}; truncate pipeline.routes")
    made = Routed(staged)
    made.moved()
    return made


def elsewhere(log: psycopg.Connection[Any], name: str = "c", **options: Any) -> Any:
    log.execute("set search_path = public")
    return create(log, name, events_table=str(AUDIT), **options)


def refused(log: psycopg.Connection[Any], query: str) -> tuple[str | None, str]:
    with pytest.raises(psycopg.Error) as raised:
        log.execute(query.encode())
    return raised.value.sqlstate, str(raised.value.diag.message_primary)


@pytest.mark.parametrize("collapse", [True, False], ids=["rows", "every change"])
def test_items_are_of_the_table_that_the_consumer_reads(routed: Routed, collapse: bool) -> None:
    """Seqs of both tables overlap: an event of the wrong one would be seen."""
    there, here = elsewhere(routed.log, collapse=collapse), create(routed.log, "default", collapse=collapse)
    routed.moved(insert("t", id=1, v="t"), insert("audit", id=1, v="a"), insert("t", id=2, v="t"))
    routed.moved(update("audit", id=1, v="b"), insert("audit", id=2, v="c"), delete("t", id=2, v="t"))
    (first,) = there.receive(1)
    assert (first.pk, first.record["v"]) == ("1", "b" if collapse else "a")
    assert there.ack(first) == 1
    rest = there.receive()
    assert [(item.pk, item.record["v"]) for item in rest] == ([] if collapse else [("1", "b")]) + [("2", "c")]
    assert {item.record["v"] for item in here.receive()} == {"t"}
    assert there.ack(*rest) == len(rest)
    status = routed.status()
    assert (status.events_table, status.routed, status.pending, status.lag) == (str(AUDIT), True, 0, 0)


def test_a_key_that_changes_and_a_truncate_are_taken_from_that_table(routed: Routed) -> None:
    client = elsewhere(routed.log)
    routed.moved(insert("t", id=9), insert("audit", id=1), update("audit", {"id": 1}, id=2))
    assert sorted((item.pk, item.action, item.record["id"]) for item in client.receive()) == [
        ("1", "delete", 1),
        ("2", "update", 2),
    ]
    client.expire()
    routed.moved(truncate("audit"))
    assert [(item.pk, item.action) for item in client.receive()] == [("", "truncate")]


def test_a_dead_letter_keeps_its_event_and_comes_again(routed: Routed) -> None:
    client = elsewhere(routed.log, max_deliveries=1)
    routed.moved(insert("t", id=1, v="t"), insert("audit", id=1, v="a"))
    client.nack(*client.receive())
    dead = "select record_pk, source_table_name, record ->> 'v' from pipeline.dead_records('c')"
    assert routed.log.execute(dead).fetchall() == [("1", "audit", "a")]
    routed.log.execute(f"delete from {AUDIT}")
    assert routed.log.execute("select pipeline.retry_dead('c')").fetchone() == (1,)
    assert [item.record for item in client.receive()] == [{"id": 1, "v": "a"}]


@pytest.mark.parametrize(("table", "source"), [(DEFAULT, "t"), (AUDIT, "audit")], ids=["default", "another"])
def test_of_several_events_of_one_seq_an_item_has_its_own(routed: Routed, table: EventsTable, source: str) -> None:
    """As in a legacy table. Where none is its own, as of a row whose key has changed, it has any."""
    client = create(routed.log, events_table=str(table), max_deliveries=1)
    routed.moved(*(insert(source, id=number, v=f"v{number}") for number in (1, 2, 3)))
    with routed.log.transaction(force_rollback=True):
        routed.log.execute(f"alter table {table} drop constraint {table.name}_pkey; update {table} set seq = 1")
        routed.log.execute("update public.consumer_records set seq = 1")
        routed.log.execute("update public.consumer_records set record_pk = '9' where record_pk = '2'")
        items = client.receive()
        found = {item.pk: item.record["v"] for item in items}
        client.nack(*items)
        letters = routed.log.execute("select record_pk, record ->> 'v' from pipeline.dead_records('c')")
        dead: dict[str, str] = dict(letters)
        routed.log.execute("select pipeline.retry_dead('c')")
        again = {item.pk: item.record["v"] for item in client.receive()}
    for each in (found, dead, again):
        assert [each.pop("1"), each.pop("3")] == ["v1", "v3"]
        assert list(each) == ["9"]
        assert each["9"] in ("v1", "v2", "v3")
    assert again == dead


def test_a_change_that_could_not_be_written_there_comes_when_it_is_retried(routed: Routed) -> None:
    client = elsewhere(routed.log)
    routed.log.execute(f"alter table {AUDIT} add constraint no_bad check (record ->> 'v' <> 'bad')")
    routed.staged.commit(insert("audit", id=1, v="bad"), insert("audit", id=2, v="good"))
    move(routed.staged.shuffler(routes=(ROUTE,), on_poison="park"))
    assert [item.pk for item in client.receive()] == ["2"]
    routed.log.execute(f"alter table {AUDIT} drop constraint no_bad")
    dead_letters.request_retry(routed.log, None)
    routed.moved()
    assert [(item.pk, item.record["v"]) for item in client.receive()] == [("1", "bad")]


def test_a_consumer_holds_retention_of_its_own_events_table_only(routed: Routed) -> None:
    elsewhere(routed.log)
    elsewhere(routed.log, "cursor", kind="cursor", tables=["public.audit"])
    routed.moved(insert("audit", id=1), insert("audit", id=2))
    with connections.connect(routed.staged.dsn, "pipeline database") as connection:
        needing = ReaderRegistry(connection, AUDIT).needing()
        assert [(each.name, each.needs_after) for each in needing] == [("c", 0), ("cursor", 0)]
        assert ReaderRegistry(connection, DEFAULT).needing() == []
        lagging = ReaderRegistry(connection, AUDIT).lagging(of_default=False)
        assert {(each.name, each.seqs) for each in lagging} == {("c", 2), ("cursor", 2)}
        assert consumer_status.list_read_tables(connection) == [str(AUDIT)]


def test_a_cursor_counts_in_the_seqs_of_its_table(routed: Routed) -> None:
    routed.moved(insert("t", id=1), insert("t", id=2), insert("audit", id=1))
    elsewhere(routed.log, start="now", kind="cursor")
    assert routed.status().position == 1
    assert refused(routed.log, "select pipeline.advance('c', 2)") == (
        "22023",
        "seq 2 is beyond the newest event, which is 1",
    )
    assert routed.log.execute("select (pipeline.reset_consumer('c')).position").fetchone() == (0,)
    assert routed.status().lag == 1
    assert routed.log.execute("select pipeline.advance('c', 1)").fetchone() == (1,)


def test_a_consumer_stays_when_no_route_names_its_table_any_more(routed: Routed) -> None:
    client = elsewhere(routed.log)
    routed.moved(insert("audit", id=1, v="a"))
    routed.moved(insert("audit", id=2, v="default"), routes=())
    status = routed.status()
    assert (status.routed, status.pending, status.lag) == (False, 1, 0)
    shown = render.summary_table([status])
    assert "no route sends changes there" in str(next(iter(shown.columns[-1].cells)))
    assert [item.record["v"] for item in client.receive()] == ["a"]
    routed.moved(insert("audit", id=3, v="again"))
    assert [item.record["v"] for item in client.receive()] == ["again"]


def test_a_table_that_is_gone_is_named_and_stops_nothing_else(routed: Routed) -> None:
    elsewhere(routed.log)
    elsewhere(routed.log, "cursor", kind="cursor")
    here = create(routed.log, "default")
    routed.moved(insert("audit", id=1))
    routed.log.execute(f"drop table {AUDIT}")
    routed.moved(insert("t", id=1), routes=())
    assert [item.pk for item in here.receive()] == ["1"]
    gone = ("22003", "consumer 'c' reads public.audit_events, which no longer exists")
    assert refused(routed.log, "select * from pipeline.receive('c')") == gone
    assert refused(routed.log, "select pipeline.reset_consumer('c')") == gone
    assert {each.name: each.lag for each in consumer_status.find_consumers(routed.log)}["c"] == 0
    readers = "select name, position from pipeline.readers where name in ('c', 'cursor') order by name"
    assert routed.log.execute(readers).fetchall() == [("c", 0), ("cursor", 0)]
    for name in ("c", "cursor"):
        routed.log.execute("select pipeline.drop_consumer(%s)", [name])
    assert routed.log.execute("select count(*) from pipeline.consumer_progress").fetchone() == (1,)


def test_a_consumer_of_an_unknown_table_is_refused(routed: Routed) -> None:
    for name in ("public.nothing", "audit", "a.b.c", "", ".x"):
        state, said = refused(routed.log, f"select pipeline.find_events_table('{name}')")
        assert (state, said) == ("22023", f"there is no events table {name}")
    assert refused(routed.log, "select pipeline.create_consumer('c', events_table => 'public.consumer_records')") == (
        "22023",
        "public.consumer_records is no events table",
    )
    create(routed.log, events_table=str(DEFAULT))
    assert routed.status().events_table is None


def test_a_server_of_the_version_before_serves_none_of_them(routed: Routed) -> None:
    """Its shuffler finds no progress, and it cannot take the cursor, which it would read from the default table."""
    elsewhere(routed.log)
    elsewhere(routed.log, "every", collapse=False)
    elsewhere(routed.log, "cursor", kind="cursor")
    create(routed.log, "default")
    found = routed.log.execute(
        "select c.name from pipeline.consumer_progress p join pipeline.consumers c on c.id = abs(p.consumer_id)"
    ).fetchall()
    assert found == [("default",)]
    state, said = refused(
        routed.log, "update pipeline.consumers set reader = 'r', reader_session = 's' where name = 'cursor'"
    )
    assert (state, said.split(",")[0]) == ("55006", "consumer 'cursor' reads public.audit_events")
    routed.log.execute("update pipeline.consumers set reader = null, reader_session = null where name = 'cursor'")


def test_metrics_name_the_table(routed: Routed) -> None:
    elsewhere(routed.log)
    create(routed.log, "default")
    families = [*metrics._consumers(consumer_status.find_consumers(routed.log))]
    samples = {tuple(sample.labels.items()): sample.value for each in families for sample in each.samples}
    assert samples[("consumer", "c"), ("table", str(AUDIT))] == 1
    assert not [labels for labels in samples if ("consumer", "default") in labels and len(labels) > 1]
    assert PipelineStatus(consumers=consumer_status.find_consumers(routed.log)).to_json()["consumers"][0][
        "events_table"
    ] == str(AUDIT)
