"""Changes that cannot be written: where the shuffler stops, what it keeps apart, and how that is written again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from pipeline.config import settings
from pipeline.config.routes import Route
from pipeline.log import dead_letters
from pipeline.log.shuffling.shuffler import Shuffler
from pipeline.log.staging import rows
from pipeline.operate.verify import verify
from pipeline.postgres import connections
from tests.fixtures.postgres import Cluster
from tests.fixtures.shuffling import move
from tests.fixtures.staged import (
    Change,
    Client,
    Staged,
    Table,
    create,
    delete,
    insert,
    read,
    staging_of,
    truncate,
    update,
)

NO_BAD = (
    "alter table public.sequin_events add constraint no_bad check (record ->> 'v' is distinct from 'bad') not valid"
)
NO_CHECK = "alter table public.sequin_events drop constraint if exists no_bad"
EVENTS = "select record ->> 'id', metadata from public.sequin_events order by seq"
DELETED = Route(actions=("delete",), events_table="public.deleted_events")
TOO_DEEP = "[" * 100_000 + "]" * 100_000


@pytest.fixture(scope="module")
def staging(cluster: Cluster) -> Iterator[Staged]:
    with staging_of(cluster, Table("t"), Table("two", ("a", "b")), Table("unkeyed", ())) as made:
        yield made


@pytest.fixture
def staged(staging: Staged) -> Staged:
    run = staging.connection.execute
    run("truncate pipeline.dead_letters, pipeline.routes, pipeline.events_tables restart identity")
    run(NO_CHECK)
    staging.reset()
    run(NO_BAD)
    return staging


def good(*ids: int) -> list[Change]:
    return [insert("t", id=each, v="good") for each in ids]


def bad(*ids: int) -> list[Change]:
    return [insert("t", id=each, v="bad") for each in ids]


def shuffled(staged: Staged, on_poison: Any = "park") -> Shuffler:
    """One that has done what it can."""
    shuffler = staged.shuffler(on_poison=on_poison)
    move(shuffler)
    return shuffler


def again(staged: Staged, shuffler: Shuffler) -> None:
    shuffler._probe_at = 0.0
    move(shuffler)


def events(staged: Staged) -> list[tuple[Any, ...]]:
    return staged.connection.execute(EVENTS).fetchall()


def letters(staged: Staged) -> list[tuple[int, str, int]]:
    found = dead_letters.find(staged.connection, None)
    return [(letter.id, letter.state, letter.attempts) for letter in found]


def test_the_shuffler_stops_before_a_poison_transaction_until_it_is_cured(staged: Staged):
    staged.commit(*good(1, 2))
    staged.commit(*good(3), *bad(4), *good(5))
    staged.commit(*good(6))
    shuffler = shuffled(staged, "stop")
    assert [row[0] for row in events(staged)] == ["1", "2"]
    text = str(shuffler.poison)
    assert "insert of public.t at (0/C8, 1) cannot be written" in text
    assert "no_bad" in text and "PIPELINE_ON_POISON=park" in text and "23514" in text
    staged.commit(*good(7))
    again(staged, shuffler)
    assert [row[0] for row in events(staged)] == ["1", "2"] and shuffler.poison
    staged.connection.execute(NO_CHECK)
    again(staged, shuffler)
    assert [row[0] for row in events(staged)] == list("1234567") and shuffler.poison is None


def test_another_shuffler_stops_at_the_same_place_and_parks_when_told_to(staged: Staged):
    staged.commit(*good(1), *bad(2))
    assert shuffled(staged, "stop").poison and shuffled(staged, "stop").poison
    assert shuffled(staged).poison is None
    assert events(staged) == [("1", None), (None, {"parked": 1})]


def test_what_is_parked_keeps_its_place_and_its_values(staged: Staged):
    staged.commit(*good(1), *bad(2), *good(3))
    staged.commit(*bad(4))
    shuffled(staged)
    assert events(staged) == [("1", None), (None, {"parked": 1}), ("3", None), (None, {"parked": 2})]
    written = staged.connection.execute(
        "select commit_lsn, commit_idx, action, record_pk, record::text, source_table_name from sequin_events"
        " order by seq"
    ).fetchall()
    assert written[1] == (100, 1, "insert", "2", "{}", "t") and written[3] == (200, 0, "insert", "4", "{}", "t")
    (letter, _) = dead_letters.find(staged.connection, "parked")
    assert (letter.seq, letter.table, letter.sqlstate) == (_seq(staged, 1), "public.t", "23514")
    raw = staged.connection.execute("select record from pipeline.dead_letters where id = 1").fetchone()
    assert raw == ('{"id": 2, "v": "bad"}',)


def test_a_row_that_was_too_long_to_be_staged_is_named_and_can_be_parked(staged: Staged):
    staged.commit(*good(1, 2, 3))
    staged.connection.execute(
        "update public.wal_events set record = %s where record_pk = '2'", [rows.too_long(1_140_000_000).decode()]
    )
    reason = str(shuffled(staged, "stop").poison)
    assert "a row of 1,140,000,000 bytes as JSON" in reason and "remove the cause" not in reason
    shuffled(staged)
    assert events(staged) == [("1", None), (None, {"parked": 1}), ("3", None)]
    (letter,) = dead_letters.find(staged.connection, "parked")
    assert letter.cause.startswith("a row of 1,140,000,000 bytes") and letter.sqlstate == "54000"
    dead_letters.request_retry(staged.connection, None)
    shuffled(staged)
    (again_parked,) = dead_letters.find(staged.connection, "parked")
    assert (again_parked.cause, again_parked.sqlstate) == (letter.cause, letter.sqlstate)


def _seq(staged: Staged, place: int) -> int:
    return int(staged.connection.execute("select seq from sequin_events order by seq").fetchall()[place][0])


def test_the_shuffler_stops_if_even_the_empty_event_cannot_be_written(staged: Staged):
    staged.connection.execute(NO_CHECK)
    staged.connection.execute("alter table sequin_events add constraint no_bad check (record_pk <> '2') not valid")
    staged.commit(*good(1))
    staged.commit(*good(2))
    shuffler = shuffled(staged)
    assert [row[0] for row in events(staged)] == ["1"] and letters(staged) == []
    assert "not even an event with an empty record" in str(shuffler.poison)
    staged.connection.execute(NO_CHECK)
    again(staged, shuffler)
    assert [row[0] for row in events(staged)] == ["1", "2"]


CAUSES = {
    "trigger": (
        "create function refuse() returns trigger language plpgsql as $$ begin if new.record ->> 'v' = 'bad' then"
        " raise 'not that'; end if; return new; end $$;"
        " create trigger refuse before insert on sequin_events for each row execute function refuse()",
        "drop function refuse cascade",
        "P0001",
    ),
    "unique": (
        "create unique index once on sequin_events ((case when record ->> 'v' = 'bad' then 'bad' end), seq);"
        " create table first (v text primary key); insert into first values ('good');"
        " create function first_of() returns trigger language plpgsql as $$ begin"
        " insert into first select new.record ->> 'v' where new.record ->> 'v' = 'bad'; return new; end $$;"
        " insert into first values ('bad');"
        " create trigger first before insert on sequin_events for each row execute function first_of()",
        "drop index once; drop table first; drop function first_of cascade",
        "23505",
    ),
    "generated": (
        "alter table sequin_events add column n integer generated always as"
        " (1 / (case when record ->> 'v' = 'bad' then 0 else 1 end)) stored",
        "alter table sequin_events drop column n",
        "22012",
    ),
    "trigger that drops": (
        "create function leave_out() returns trigger language plpgsql as $$ begin if new.record ->> 'v' = 'bad' then"
        " return null; end if; return new; end $$;"
        " create trigger leave_out before insert on sequin_events for each row execute function leave_out()",
        "drop function leave_out cascade",
        "27000",
    ),
    "deferred": (
        "create table allowed (v text primary key); insert into allowed values ('good');"
        " alter table sequin_events add column v text generated always as (record ->> 'v') stored;"
        " alter table sequin_events add constraint known foreign key (v) references allowed"
        " deferrable initially deferred",
        "alter table sequin_events drop column v; drop table allowed",
        "23503",
    ),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_whatever_the_owner_of_the_table_asks_of_it(staged: Staged, cause: str):
    make, unmake, sqlstate = CAUSES[cause]
    staged.connection.execute(NO_CHECK)
    staged.connection.execute(make.encode())
    try:
        staged.commit(*good(1), *bad(2))
        shuffled(staged)
        assert events(staged) == [("1", None), (None, {"parked": 1})]
        assert dead_letters.find(staged.connection, None)[0].sqlstate == sqlstate
    finally:
        staged.connection.execute(unmake.encode())


DROPS_ALL = (
    "create function leave_out() returns trigger language plpgsql as 'begin return null; end';"
    " create trigger leave_out before insert on {0} for each row execute function leave_out()",
    "drop function leave_out cascade",
)
SWALLOWED = {
    "a trigger": DROPS_ALL,
    "a rule": ("create rule r as on insert to {0} do instead nothing", "drop rule r on {0}"),
    "a rule that counts as much": (
        "create table elsewhere (seq bigint);"
        " create rule r as on insert to {0} do instead insert into elsewhere values (new.seq)",
        "drop rule r on {0}; drop table elsewhere",
    ),
    "a rule for some": (
        "create rule r as on insert to {0} where new.record_pk = '2' do instead nothing",
        "drop rule r on {0}",
    ),
}


@pytest.mark.parametrize("on_poison", ["stop", "park"])
@pytest.mark.parametrize("cause", SWALLOWED)
def test_events_that_are_swallowed_without_a_word_stop_it(staged: Staged, cause: str, on_poison: str):
    make, unmake = SWALLOWED[cause]
    shuffler = shuffled(staged, on_poison)
    staged.commit(*good(1))
    move(shuffler)
    staged.connection.execute(make.format("sequin_events").encode())
    try:
        staged.commit(*good(2, 3))
        staged.commit(*good(4))
        move(shuffler)
        assert [row[0] for row in events(staged)] == ["1"]
        assert "27000" in str(shuffler.poison) and "public.sequin_events" in str(shuffler.poison)
    finally:
        staged.connection.execute(unmake.format("sequin_events").encode())
    again(staged, shuffler)
    assert [row[0] for row in events(staged)] == list("1234") and letters(staged) == []
    staged.moved(*good(5))
    assert len(events(staged)) == 5


def test_a_routed_table_that_drops_rows_keeps_filled_in_values_correct(staged: Staged):
    shuffler = staged.shuffler(routes=(Route(actions=("delete",), events_table="public.gone"),))
    staged.commit(*good(1, 2))
    move(shuffler)
    make, unmake = DROPS_ALL
    staged.connection.execute(make.format("public.gone").encode())
    staged.commit(insert("t", id=3, v="good"), delete("t", id=1))
    move(shuffler)
    assert [row[0] for row in events(staged)] == ["1", "2"]
    assert "public.gone" in str(shuffler.poison)
    staged.connection.execute(unmake.encode())
    again(staged, shuffler)
    assert [row[0] for row in events(staged)] == ["1", "2", "3"]
    staged.connection.execute(make.format("sequin_events").encode())
    staged.commit(update("t", id=2))
    segment = f"pipeline.wal_events_{staged.segment:05d}"
    staged.connection.execute(f"update {segment} set unchanged_columns = '[\"v\"]' where action = 'update'")
    move(shuffler)
    assert shuffler.poison and "27000" in str(shuffler.poison)
    staged.connection.execute(unmake.encode())
    again(staged, shuffler)
    assert [row[0] for row in events(staged)] == ["1", "2", "3", "2"]


def test_a_letter_whose_event_is_swallowed_stays_parked(staged: Staged):
    staged.commit(*bad(1))
    shuffler = shuffled(staged)
    staged.connection.execute(NO_CHECK)
    make, unmake = DROPS_ALL
    staged.connection.execute(make.format("sequin_events").encode())
    dead_letters.request_retry(staged.connection, [1])
    again(staged, shuffler)
    staged.connection.execute(unmake.encode())
    assert letters(staged) == [(1, "parked", 2)] and len(events(staged)) == 1


def test_what_jsonb_refuses_is_parked_and_its_text_stays_out_of_the_cause(staged: Staged):
    staged.commit(*good(1), insert("t", id=2, v="x"))
    segment = f"pipeline.wal_events_{staged.segment:05d}"
    staged.connection.execute(f"update {segment} set record = %s where commit_idx = 1", [TOO_DEEP])
    shuffled(staged)
    assert events(staged) == [("1", None), (None, {"parked": 1})]
    assert dead_letters.find(staged.connection, None)[0].sqlstate == "54001"


def test_a_retried_letter_comes_at_the_head_with_its_place_and_a_mark(staged: Staged):
    staged.commit(*good(1), *bad(2), *good(3))
    shuffler = shuffled(staged)
    staged.connection.execute(NO_CHECK)
    assert dead_letters.request_retry(staged.connection, [1, 99]) == [1]
    again(staged, shuffler)
    assert events(staged)[-1] == ("2", {"retried": 1})
    place = "select commit_lsn, commit_idx, xid, committed_at, record_pk from sequin_events where metadata ? %s"
    held, written = (staged.connection.execute(place, [mark]).fetchall() for mark in ("parked", "retried"))
    assert held == written
    assert letters(staged) == [(1, "retried", 2)]
    again(staged, shuffler)
    assert len(events(staged)) == 4


def test_a_letter_that_fails_again_stays_parked_with_the_new_cause(staged: Staged):
    staged.commit(*bad(1, 2))
    shuffler = shuffled(staged)
    staged.connection.execute(NO_CHECK)
    staged.connection.execute(
        "alter table sequin_events add constraint no_bad check (record ->> 'id' <> '1') not valid"
    )
    dead_letters.request_retry(staged.connection, None)
    again(staged, shuffler)
    assert letters(staged) == [(1, "parked", 2), (2, "retried", 2)]
    assert [row[1] for row in events(staged)] == [{"parked": 1}, {"parked": 2}, {"retried": 2}]


def test_what_is_discarded_is_kept_for_the_record_and_not_retried(staged: Staged):
    staged.commit(*bad(1, 2))
    shuffler = shuffled(staged)
    assert dead_letters.discard(staged.connection, [1]) == [1]
    assert dead_letters.request_retry(staged.connection, None) == [2]
    staged.connection.execute(NO_CHECK)
    again(staged, shuffler)
    assert letters(staged) == [(1, "discarded", 1), (2, "retried", 2)]
    assert dead_letters.counts(staged.connection) == {"parked": 0, "retrying": 0, "retried": 1, "discarded": 1}


NEWER: dict[str, tuple[Callable[[], Change], bool]] = {
    "an update": (lambda: update("t", id=1, v="new"), True),
    "a delete": (lambda: delete("t", id=1), True),
    "a truncate": (lambda: truncate("t"), True),
    "a change of its key": (lambda: update("t", {"id": 1}, id=5, v="new"), True),
    "another row": (lambda: insert("t", id=11, v="new"), False),
    "one that is parked too": (lambda: insert("t", id=1, v="bad"), False),
    "a read": (lambda: read("t", id=1, v="new"), True),
    "a read that is parked too": (lambda: read("t", id=1, v="bad"), False),
}


@pytest.mark.parametrize("name", NEWER)
def test_a_retried_letter_says_when_something_newer_is_known_of_its_row(staged: Staged, name: str):
    newer, outdated = NEWER[name]
    staged.commit(*bad(1))
    staged.commit(newer())
    shuffler = shuffled(staged)
    staged.connection.execute(NO_CHECK)
    dead_letters.request_retry(staged.connection, [1])
    again(staged, shuffler)
    assert events(staged)[-1][1] == {"retried": 1, **({"outdated": True} if outdated else {})}


def test_the_current_state_of_a_consumer_is_neither_blanked_nor_set_back(staged: Staged):
    client = create(staged.connection)
    staged.moved(*good(1))
    assert [item.record["v"] for item in received(client)] == ["good"]
    staged.commit(update("t", id=1, v="bad"))
    shuffler = shuffled(staged)
    assert received(client) == []
    staged.commit(update("t", id=1, v="newest"))
    again(staged, shuffler)
    staged.connection.execute(NO_CHECK)
    dead_letters.request_retry(staged.connection, None)
    again(staged, shuffler)
    assert [item.record["v"] for item in received(client)] == ["newest"]


def test_a_consumer_is_given_what_was_retried_while_nothing_newer_is_known(staged: Staged):
    client = create(staged.connection)
    staged.commit(*bad(1))
    shuffler = shuffled(staged)
    assert received(client) == []
    staged.connection.execute(NO_CHECK)
    dead_letters.request_retry(staged.connection, None)
    again(staged, shuffler)
    assert [(item.record["v"], item.action) for item in received(client)] == [("bad", "insert")]


@pytest.mark.parametrize("later", [[], ["newest"]])
def test_a_parked_read_changes_no_item_until_it_is_retried(staged: Staged, later: list[str]):
    client = create(staged.connection)
    staged.moved(*good(1))
    staged.commit(read("t", id=1, v="bad"), read("t", id=2, v="good"))
    shuffler = shuffled(staged)
    assert [(item.pk, item.record["v"]) for item in received(client)] == [("1", "good"), ("2", "good")]
    for value in later:
        staged.commit(update("t", id=1, v=value))
    staged.connection.execute(NO_CHECK)
    dead_letters.request_retry(staged.connection, None)
    again(staged, shuffler)
    (item,) = received(client)
    assert (item.action, item.record["v"]) == (("update", "newest") if later else ("read", "bad"))
    assert [letter.action for letter in dead_letters.find(staged.connection, "retried")] == ["read"]
    assert broken(staged) == {}


def received(client: Client) -> list[Any]:
    found = client.receive()
    client.ack(*found)
    return found


def test_disk_full_and_deadlocks_are_no_poison():
    for error in (
        psycopg.errors.DiskFull,
        psycopg.errors.DeadlockDetected,
        psycopg.errors.LockNotAvailable,
        psycopg.errors.OutOfMemory,
        psycopg.errors.SerializationFailure,
        psycopg.errors.QueryCanceled,
    ):
        assert not connections.is_poison(error())


def test_verify_accepts_what_is_parked_and_retried_and_still_finds_damage(staged: Staged):
    staged.commit(*good(1), *bad(2), *good(3))
    shuffler = shuffled(staged)
    staged.connection.execute(NO_CHECK)
    dead_letters.request_retry(staged.connection, None)
    again(staged, shuffler)
    assert broken(staged) == {}
    staged.commit(*good(4))
    again(staged, shuffler)
    assert broken(staged) == {}
    copy = "insert into sequin_events select (jsonb_populate_record(e, jsonb_build_object('seq', seq + 50))).* from"
    staged.connection.execute(f"{copy} sequin_events e where metadata ? 'retried'")
    for counted in ("shuffle_progress", "events_tables"):
        staged.connection.execute(f"update pipeline.{counted} set last_seq = last_seq + 50")
    assert "events" in broken(staged)
    staged.connection.execute("delete from sequin_events where metadata ? 'parked'")
    assert "commit_idx" in broken(staged)


def broken(staged: Staged) -> dict[str, list[Any]]:
    config = settings.load(source_dsn="host=127.0.0.1 port=1", database_dsn=staged.dsn)
    found = verify.run(config, 1, 1000, lambda *_: None)
    return {check.name: check.faults for check in found.checks if check.broken}


def test_each_table_of_a_route_keeps_its_order_around_what_is_parked(staged: Staged):
    staged.connection.execute(NO_CHECK)
    staged.shuffler(on_poison="park", routes=[DELETED]).step()
    for table in ("sequin_events", "deleted_events"):
        staged.connection.execute(NO_BAD.replace("sequin_events", table).encode())
    try:
        gone = [delete("t", id=each, v=v) for each, v in ((1, "good"), (2, "bad"), (3, "good"))]
        staged.commit(*good(4), *gone, *bad(5), *good(6))
        move(staged.shuffler(on_poison="park", routes=[DELETED]))
        assert events(staged) == [("4", None), (None, {"parked": 2}), ("6", None)]
        assert staged.connection.execute(EVENTS.replace("sequin", "deleted").encode()).fetchall() == [
            ("1", None),
            (None, {"parked": 1}),
            ("3", None),
        ]
        assert [letter.events_table for letter in dead_letters.find(staged.connection, None)] == [
            "public.deleted_events",
            "public.sequin_events",
        ]
        staged.connection.execute("alter table deleted_events drop constraint no_bad")
        dead_letters.request_retry(staged.connection, None)
        again(staged, staged.shuffler(on_poison="park"))  # the route has gone
        assert letters(staged) == [(1, "retried", 2), (2, "parked", 2)]
        row = staged.connection.execute(
            "select record ->> 'id' from deleted_events where metadata ? 'retried'"
        ).fetchone()
        assert row == ("2",)
    finally:
        staged.connection.execute("drop table deleted_events; truncate pipeline.routes, pipeline.events_tables")


def test_many_poisoned_changes_in_one_transaction(staged: Staged):
    staged.commit(*(insert("t", id=each, v="bad" if each % 5 == 0 else "good") for each in range(100)))
    shuffled(staged)
    assert len(letters(staged)) == 20 and len(events(staged)) == 100
    keys = staged.connection.execute("select record_pk::int from sequin_events order by seq").fetchall()
    assert keys == [(each,) for each in range(100)]
