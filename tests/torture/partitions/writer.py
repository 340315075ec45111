"""Writes rows of a partitioned table, and lets its partitions come and go with rows in every way that Postgres has."""

from __future__ import annotations

import random
import threading
from collections import Counter
from contextlib import suppress

import psycopg

PARTS, WIDTH = 8, 100
"""Partitions by ranges of this many ids; rows of one that is not there are in the default partition."""
MADE = (
    "create table p (id int primary key, n int, note text) partition by range (id)",
    "create table p_rest partition of p default",
    f"create table p_tree partition of p for values from ({PARTS * WIDTH}) to ({2 * PARTS * WIDTH})"
    " partition by range (id)",
    f"create table p_tree_low partition of p_tree for values from ({PARTS * WIDTH}) to ({PARTS * WIDTH + WIDTH})",
    "create table p_tree_rest partition of p_tree default",
)
_HAS = "select inhparent::regclass::text from pg_inherits where inhrelid = to_regclass(%s)"
_MOVE = """
    with gone as (delete from p_rest where id >= {low} and id < {high} returning *)
    insert into {part} select * from gone on conflict (id) do update set n = excluded.n
"""


class Writer:
    """Two threads until the end of the block. `counts`: what was done."""

    def __init__(self, dsn: str, seed: int, *, stays: bool) -> None:
        """`stays`: each partition that leaves joins again at once, so that the log must have the table whole."""
        self._stays = stays
        self._dsn, self._random = dsn, random.Random(seed)
        self.counts: Counter[str] = Counter()
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._loop, args=(each,)) for each in (self._rows, self._parts)]

    def __enter__(self) -> Writer:
        with psycopg.connect(self._dsn, autocommit=True) as source:
            for statement in MADE:
                source.execute(statement.encode())
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _loop(self, act: object) -> None:
        assert callable(act)
        while not self._stopped.is_set():
            with suppress(psycopg.Error), psycopg.connect(self._dsn, autocommit=True) as source:
                source.execute("set lock_timeout = '2s'")
                while not self._stopped.is_set():
                    with suppress(psycopg.errors.DatabaseError):  # a deadlock, or rows that stand in the way
                        act(source)

    def _rows(self, source: psycopg.Connection) -> None:
        ids = [self._random.randrange(2 * PARTS * WIDTH) for _ in range(self._random.choice([1, 1, 3, 40]))]
        what = self._random.choice(["insert", "insert", "update", "delete"])
        values = {"ids": ids, "n": self._random.randrange(10**6)}
        query = {
            "insert": "insert into p select i, %(n)s, 'x' from unnest(%(ids)s::int[]) i on conflict (id) do update"
            " set n = excluded.n",
            "update": "update p set n = %(n)s where id = any(%(ids)s)",
            "delete": "delete from p where id = any(%(ids)s)",
        }[what]
        source.execute(query.encode(), values)
        self.counts[what] += 1
        self._stopped.wait(self._random.choice([0.0, 0.01, 0.1]))

    def _parts(self, source: psycopg.Connection) -> None:
        number = self._random.randrange(PARTS + 1)
        if number == PARTS:
            done = self._between(source)
        else:
            row = source.execute(_HAS, (f"p_{number}",)).fetchone()
            there = source.execute("select to_regclass(%s)::text", (f"p_{number}",)).fetchone() != (None,)
            done = self._leave(source, number) if row else self._join(source, number, there=there)
        self.counts[done] += 1
        self._stopped.wait(self._random.choice([0.0, 0.2, 1.0, 3.0]))

    def _leave(self, source: psycopg.Connection, number: int) -> str:
        part = f"p_{number}"
        what = "blink" if self._stays else self._random.choice(["detach", "drop", "truncate", "blink", "blink"])
        if what == "blink":
            source.execute(f"alter table p detach partition {part}".encode())
            self._stopped.wait(self._random.choice([0.0, 0.0, 0.5]))
            self._change(source, number)
            self._attach(source, number)
        elif what == "detach":
            source.execute(f"alter table p detach partition {part}".encode())
        else:
            source.execute(f"{what} table {part}".encode())
        return what

    def _join(self, source: psycopg.Connection, number: int, *, there: bool) -> str:
        if there:
            self._change(source, number)
            if self._random.random() < 0.2:
                source.execute(f"drop table p_{number}".encode())
                return "drop apart"
            self._attach(source, number)
            return "attach again"
        with source.transaction():
            source.execute(f"create table p_{number} (like p including all)".encode())
            if self._random.random() < 0.5:
                self._change(source, number)
            self._attach(source, number)
        return "attach"

    def _change(self, source: psycopg.Connection, number: int) -> None:
        """Rows of a table that is no partition now."""
        part, low = f"p_{number}", number * WIDTH
        source.execute(f"delete from {part} where id %% 7 = %s".encode(), (self._random.randrange(7),))
        source.execute(f"update {part} set n = -n where id %% 5 = 0".encode(), ())
        query = f"insert into {part} select g, 0, 'apart' from generate_series(%s::int, %s) g on conflict do nothing"
        first = low + self._random.randrange(WIDTH - 10)
        source.execute(query.encode(), (first, first + 9))

    def _attach(self, source: psycopg.Connection, number: int) -> None:
        """As pg_partman does: rows of the default partition move to it in the same transaction."""
        part, low, high = f"p_{number}", number * WIDTH, (number + 1) * WIDTH
        with source.transaction():
            source.execute(b"lock table p, p_rest in access exclusive mode")
            source.execute(_MOVE.format(part=part, low=low, high=high).encode())
            source.execute(f"alter table p attach partition {part} for values from ({low}) to ({high})".encode())

    def _between(self, source: psycopg.Connection) -> str:
        """A partitioned table between leaves and returns, while the default partition gets none of its rows."""
        low, high = PARTS * WIDTH, 2 * PARTS * WIDTH
        with source.transaction():
            source.execute(b"lock table p in access exclusive mode")
            source.execute(b"alter table p detach partition p_tree")
            source.execute(
                f"insert into p_tree values ({low + self._random.randrange(PARTS)}, 0, 'apart')"
                " on conflict do nothing".encode()
            )
            source.execute(b"delete from p_tree where id %% 11 = 3" % ())
            source.execute(f"alter table p attach partition p_tree for values from ({low}) to ({high})".encode())
        return "between"
