"""Interleaved transactions of three connections, at random from a seed, equal the writers' own record.

One thread drives all three, so the order in which it says COMMIT is the order of the commits, and what RETURNING gives
back is what was written, row by row.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.fixtures import test_decoding
from tests.fixtures.postgres import Cluster
from tests.fixtures.server import Serving
from tests.fixtures.test_decoding import Change
from tests.fixtures.waiting import eventually

SEED, TRANSACTIONS, WRITERS = 20260, 300, 3
KEY_RANGE = 1_000_000
TOASTED = 3_000
"""Characters that never stay in the row: an update that leaves them alone has no such value in the WAL."""

TABLES = """
    create table items (id int primary key, amount numeric(12,2), note text, at timestamptz default clock_timestamp(),
        flag boolean, doc jsonb, big text);
    alter table items alter column big set storage external;
    create table lines (item int, no int, note text, primary key (item, no));
"""
SCRATCH = "create table scratch_{0} (note text); create table scratch_{0}_too (note text);"
ITEM = ("id", "amount", "note", "at", "flag", "doc", "big")
ITEM_BACK = "returning " + ", ".join("doc #>> '{}'" if column == "doc" else f"{column}::text" for column in ITEM)
INSERT_ITEMS = f"""
    insert into items (id, amount, note, flag, doc, big) select id, amount, note, flag, doc, big
    from jsonb_to_recordset(%s) as r (id int, amount numeric, note text, flag boolean, doc jsonb, big text) {ITEM_BACK}
"""


@dataclass
class State:
    """What a writer's transaction sees of its own rows, and its changes so far."""

    items: set[int] = field(default_factory=set)
    lines: set[tuple[int, int]] = field(default_factory=set)
    changes: list[Change] = field(default_factory=list)


class Writer:
    """One connection with rows of its own, so that no writer ever waits for another."""

    def __init__(self, connection: psycopg.Connection, number: int, chance: random.Random, record: list[list[Change]]):
        self._connection = connection
        self._number = number
        self._chance = chance
        self._record = record
        self._next_id = number * KEY_RANGE
        self._state = State()
        self._committed = State()
        self._savepoint: State | None = None
        self._left = 0

    def step(self) -> bool:
        """The next statement; True when that ended a transaction."""
        if not self._left:
            self._left = self._chance.randint(1, 7)
            self._connection.execute("begin")
            return False
        self._left -= 1
        if self._left:
            self._chance.choice(self.OPERATIONS)(self)
            return False
        self._end()
        return True

    def finish(self) -> None:
        while self._left:
            self.step()

    def _end(self) -> None:
        self._savepoint = None
        if self._chance.random() < 0.2:
            self._connection.execute("rollback")
            self._state = copy.deepcopy(self._committed)
            return
        self._connection.execute("commit")
        if self._state.changes:
            self._record.append(self._state.changes)
        self._state.changes = []
        self._committed = copy.deepcopy(self._state)

    def _savepoint_or_back(self) -> None:
        if self._savepoint is None:
            self._connection.execute("savepoint here")
            self._savepoint = copy.deepcopy(self._state)
        else:
            self._connection.execute("rollback to here")
            self._state, self._savepoint = self._savepoint, None

    def _insert_items(self) -> None:
        self._item_changes("insert", INSERT_ITEMS, Jsonb([self._new_item() for _ in range(self._chance.randint(1, 4))]))

    def _new_item(self) -> dict[str, object]:
        self._next_id += 1
        self._state.items.add(self._next_id)
        return {
            "id": self._next_id,
            "amount": self._chance.choice([None, 0, "12.50", "-9999999999.99"]),
            "note": self._chance.choice([None, "", "it's", 'a "b"\n\t\\', "žluťoučký 🐎"]),
            "flag": self._chance.choice([None, True, False]),
            "doc": self._chance.choice([None, {"a": [1, {"b": None}], "": "x"}, [], "text"]),
            "big": self._big(),
        }

    def _big(self) -> str | None:
        return self._chance.choice([None, "small", f"{self._chance.random()}".ljust(TOASTED, "x")])

    def _update_items(self) -> None:
        statement = f"update items set amount = amount + 1, flag = not flag where id = any(%s) {ITEM_BACK}"
        self._item_changes("update", statement, self._some_items(4))

    def _update_big(self) -> None:
        statement = f"update items set big = %s, note = 'changed' where id = any(%s) {ITEM_BACK}"
        self._item_changes("update", statement, self._big(), self._some_items(2), touched="big")

    def _move_item(self) -> None:
        for old in self._some_items(1):
            self._next_id += 1
            self._state.items ^= {old, self._next_id}
            self._item_changes("update", f"update items set id = %s where id = %s {ITEM_BACK}", self._next_id, old)

    def _delete_items(self) -> None:
        chosen = self._some_items(3)
        self._state.items.difference_update(chosen)
        for (key,) in self._connection.execute("delete from items where id = any(%s) returning id::text", [chosen]):
            self._state.changes.append(Change("public.items", "delete", key, {"id": key}))

    def _some_items(self, most: int) -> list[int]:
        known = sorted(self._state.items)
        return self._chance.sample(known, min(len(known), self._chance.randint(1, most)))

    def _item_changes(self, action: str, statement: str, *values: object, touched: str = "") -> None:
        for row in self._connection.execute(statement, values):
            item = dict(zip(ITEM, row, strict=True))
            unchanged: tuple[str, ...] = ()
            if action == "update" and touched != "big" and len(item["big"] or "") >= TOASTED:
                del item["big"]
                unchanged = ("big",)
            self._state.changes.append(Change("public.items", action, item["id"], item, unchanged))

    def _write_line(self) -> None:
        key = (self._number, self._chance.randint(1, 9))
        action = "update" if key in self._state.lines else "insert"
        statement = "insert into lines values (%s, %s, %s)"
        if action == "update":
            statement = "update lines set item = %s, no = %s, note = %s where (item, no) = (%s, %s)"
        note = f"{self._chance.random()}"
        self._connection.execute(statement, (*key, note, *(key if action == "update" else ())))
        self._state.lines.add(key)
        values: test_decoding.Values = {"item": str(key[0]), "no": str(key[1]), "note": note}
        self._state.changes.append(Change("public.lines", action, f"[{key[0]},{key[1]}]", values))

    def _delete_lines(self) -> None:
        deleted = self._connection.execute("delete from lines where item = %s returning item, no", [self._number])
        for item, no in deleted:
            values: test_decoding.Values = {"item": str(item), "no": str(no)}
            self._state.changes.append(Change("public.lines", "delete", f"[{item},{no}]", values))
        self._state.lines.clear()

    def _fill_scratch(self) -> None:
        note = f"{self._chance.random()}"
        self._connection.execute(f"insert into scratch_{self._number} values (%s)", [note])
        self._state.changes.append(Change(f"public.scratch_{self._number}", "insert", "", {"note": note}))

    def _truncate_scratch(self) -> None:
        tables = [f"scratch_{self._number}_too", f"scratch_{self._number}"]
        self._connection.execute(f"truncate {', '.join(tables)}")
        self._state.changes += [Change(f"public.{table}", "truncate", "", {}) for table in tables]

    def _send_message(self) -> None:
        content = f"{self._chance.random()}"
        self._connection.execute("select pg_logical_emit_message(true, 'note', %s)", [content])
        self._connection.execute("select pg_logical_emit_message(false, 'note', 'not of the transaction')")
        self._state.changes.append(Change(".note", "message", "", {"content": content}))

    OPERATIONS = (
        *[_insert_items, _update_items, _savepoint_or_back] * 3,
        *[_update_big, _move_item, _delete_items, _write_line, _fill_scratch] * 2,
        *[_delete_lines, _truncate_scratch, _send_message],
    )


@pytest.fixture(params=[16, 18], ids=lambda major: f"pg{major}")
def source_cluster(request: pytest.FixtureRequest, clusters: Callable[[int], Cluster]) -> Cluster:
    return clusters(request.param)


@pytest.fixture
def database_cluster(source_cluster: Cluster) -> Cluster:
    return source_cluster


@contextmanager
def writers(dsn: str, record: list[list[Change]]) -> Iterator[list[Writer]]:
    chance = random.Random(SEED)
    with ExitStack() as stack:
        yield [
            Writer(
                stack.enter_context(psycopg.connect(dsn, autocommit=True, options="-c TimeZone=UTC")),
                number,
                chance,
                record,
            )
            for number in range(1, WRITERS + 1)
        ]


def work(dsn: str) -> list[list[Change]]:
    """The whole workload; returns the changes of each committed transaction that has any, in order of commit."""
    record: list[list[Change]] = []
    chance = random.Random(SEED + 1)
    with writers(dsn, record) as crew:
        ended = 0
        while ended < TRANSACTIONS:
            ended += chance.choice(crew).step()
        for writer in crew:
            writer.finish()
    return record


def assert_everything_occurs(changes: list[Change]) -> None:
    """The seed's workload has every kind of change, else this test would say less than its name."""
    found = {(change.table, change.action) for change in changes}
    for table in ("public.items", "public.lines"):
        assert {(table, "insert"), (table, "update"), (table, "delete")} <= found
    assert {(".note", "message"), ("public.scratch_1", "truncate"), ("public.scratch_1", "insert")} <= found
    assert any(change.unchanged for change in changes)


def test_events_equal_the_writers_own_record(source_dsn: str, database_dsn: str, serve: Callable[..., Serving]):
    with psycopg.connect(source_dsn, autocommit=True) as source, psycopg.connect(database_dsn, autocommit=True) as log:
        source.execute(TABLES + "".join(SCRATCH.format(number) for number in range(1, WRITERS + 1)))
        serve()
        record = work(source_dsn)
        test_decoding.send_mark(source, "end")
        record.append([Change(".mark", "message", "", {"content": "end"})])
        expected = [change for transaction in record for change in transaction]
        assert_everything_occurs(expected)
        eventually(lambda: test_decoding.arrived(log, "end"))
        test_decoding.assert_same(test_decoding.read_events(log), expected)
        assert test_decoding.transaction_sizes(log) == [len(transaction) for transaction in record]
