"""The source's one writer, and what its tables held after each transaction: the model that followers are held to."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress

import psycopg

from tests.fixtures.background import BackgroundThread
from tests.fixtures.changing_rows import Changes
from tests.fixtures.waiting import eventually

_UNPUBLISHED = """
    select c.relname from pg_class c
    where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p')
        and not exists (select from pg_publication_rel p where p.prrelid = c.oid)
"""
Columns = dict[str, tuple[str, ...]]
"""By table. No name is used again for another column, so what two sides call the same is the same."""
Rows = list[dict[str, str | None]]
_COLUMNS = """
    select c.relname::text, array_agg(a.attname::text order by a.attname)
    from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
    where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') group by c.relname
"""


def columns(connection: psycopg.Connection) -> Columns:
    """As they are now."""
    return {table: tuple(found) for table, found in connection.execute(_COLUMNS).fetchall()}


def rows(connection: psycopg.Connection, table: str, names: tuple[str, ...]) -> Rows:
    """All of a table, each value as its text, of large ones a checksum."""
    texts = ", ".join(
        f"case when length({name}::text) > 99 then md5({name}::text) else {name}::text end" for name in names
    )
    found = connection.execute(f"select {texts} from public.{table}".encode()).fetchall()
    return [dict(zip(names, row, strict=True)) for row in found]


class Model:
    """By the number of a transaction what each table held after it."""

    def __init__(self) -> None:
        self._known = threading.Condition()
        self._tables: dict[int, dict[str, Rows]] = {}
        self.newest = -1

    def add(self, number: int, tables: dict[str, Rows]) -> None:
        with self._known:
            self._tables[number], self.newest = tables, number
            self._known.notify_all()

    def after(self, number: int, seconds: float) -> dict[str, Rows]:
        """What it held then; a follower may be quicker than the observer of the source."""
        with self._known:
            assert self._known.wait_for(lambda: number in self._tables, seconds), f"transaction {number} is not known"
            return self._tables[number]


class Writer(BackgroundThread):
    """Writes until it is stopped; waits for a source that dies meanwhile."""

    def __init__(self, dsn: str, seed: int, model: Model) -> None:
        super().__init__()
        self._dsn, self._seed, self._model = dsn, seed, model
        self._random = random.Random(seed)
        self._ddl = _statements(self._random)
        self._wanted = threading.Event()
        self.counts: dict[str, int] = defaultdict(int)

    def alter(self) -> None:
        """Let the next transaction begin with DDL."""
        self._wanted.set()

    def work(self) -> None:
        number, source = 0, self._connect()
        changes = Changes(source, self._seed)
        source.execute("insert into clock values (1, 0)")
        self._look(source, number)
        while not self.stopped.is_set():
            ddl = next(self._ddl) if self._wanted.is_set() else ()
            self._wanted.clear()
            with suppress(psycopg.OperationalError):  # it may have committed all the same
                changes.transaction(number + 1, *ddl, source=source)
            source, number = self._looked(source, number)
            self.counts["altered"] += bool(ddl)
            time.sleep(self._random.choice((0.0, 0.0, 0.01, 0.05)))
        # What is written before a table is published is in no event, so nothing tells of one that is at rest then.
        eventually(lambda: source.execute(_UNPUBLISHED).fetchall() == [], 60)
        with source.transaction():
            source.execute("update clock set n = n + 1")
            for table in columns(source).keys() - {"clock"}:
                source.execute(_TOUCH.get(table, f"insert into {table} (id) values (-1)").encode())
        self._look(source, number)
        source.close()

    def _looked(self, source: psycopg.Connection, number: int) -> tuple[psycopg.Connection, int]:
        """As `_look`, over another connection where this one is gone."""
        while True:
            try:
                return source, self._look(source, number)
            except psycopg.OperationalError:
                source = eventually(self._connect, 60, (psycopg.Error,))

    def _look(self, source: psycopg.Connection, number: int) -> int:
        """Which transaction the source is at, since a commit may be there though its answer was lost."""
        [(found,)] = source.execute("select n from clock").fetchall()
        if found != number or number == 0:
            self._model.add(found, {table: rows(source, table, names) for table, names in columns(source).items()})
            self.counts["transactions"] += 1
        return int(found)

    def _connect(self) -> psycopg.Connection:
        return psycopg.connect(self._dsn, autocommit=True)


_TOUCH = {
    "bare": "insert into bare (a) values (99)",
    "lines": "insert into lines (a) values (99)",
    "wide": "insert into wide (id, part) values (99, 'last')",
}
"""What shows the form of a table in the log, where it is not a row with the key -1."""


def _statements(chance: random.Random) -> Iterator[tuple[str, ...]]:
    """DDL of every kind that is followed, again and again, some of it with changes in the new form.

    What is rewritten keeps its texts: others change without an event, so a reader sees them late.
    """
    number = 0
    kinds: list[Callable[[int], tuple[str, ...]]] = [
        lambda n: (f"alter table pairs add added_{n} int", f"update pairs set added_{n} = id where id % 2 = 0"),
        lambda n: (f"alter table wide add given_{n} int not null default {n}",),
        lambda n: (f"alter table keys add short_{n} text", f"alter table keys rename short_{n} to long_{n}"),
        lambda n: (
            f"alter table bare add gone_{n} text",
            "insert into bare (a) values (5)",
            f"alter table bare drop gone_{n}",
        ),
        lambda n: (f"alter table pairs alter code type {('bigint', 'int')[n % 2]}",),
        lambda n: (f"create table made_{n} (id int primary key, t text)", f"insert into made_{n} values (1, 'new')"),
        lambda n: (
            f"alter table lines alter a type {('bigint', 'int')[n % 2]}",
            "insert into lines values (7, 'wider')",
        ),
    ]
    while True:
        for kind in chance.sample(kinds, len(kinds)):
            number += 1
            yield kind(number)
