"""A reader of one follower: whatever it sees, in one snapshot, is what the source held after the last transaction of
which the follower says that it has it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import psycopg

from tests.fixtures.background import BackgroundThread
from tests.torture.followers.writer import Model, Rows, columns, rows

KNOWN_SECONDS = 60.0
WITHOUT_EVENTS = "given_"
"""Begins names of columns that are compared in the end."""
_POSITION = "select source_epoch, seq, commit_lsn from pipeline_follower.position where follower = %s"
_COPIED = """
    select t.table_name
    from pipeline_follower.tables t join pipeline_follower.copies c using (source_database_id, follower, table_oid)
    where t.follower = %s and (c.snapshot is null or c.wanted_seq is not null
        or (c.source_epoch, c.lsn) > (%s::int, %s::bigint))
"""
"""Tables that are copied, or of which the copy may have what the follower has not reached."""
_NUMBER = """
    select (record ->> 'n')::int, seq from public.sequin_events
    where source_table_name = 'clock' and action in ('insert', 'update') and seq <= %s order by seq desc limit 1
"""


class Watcher(BackgroundThread):
    """Looks until it is stopped; `seen` counts its looks, and those at which a table was copied."""

    def __init__(self, name: str, dsn: str, log: str, model: Model, wrong: Callable[[str], None]) -> None:
        super().__init__()
        self._name, self._dsn, self._log, self._model, self._wrong = name, dsn, log, model, wrong
        self._last = (0, 0)
        self.seen = Counter[str]()

    def work(self) -> None:
        while not self.stopped.is_set():
            try:
                with (
                    psycopg.connect(self._dsn) as there,
                    psycopg.connect(self._log, autocommit=True) as log,
                ):
                    there.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                    while not self.stopped.wait(0.02):
                        self._look(there, log)
            except psycopg.OperationalError:
                time.sleep(0.1)

    def _look(self, there: psycopg.Connection, log: psycopg.Connection) -> None:
        with there.transaction():
            tables = list(columns(there))
        with there.transaction():
            for table in tables:  # before the snapshot: one that is truncated later would be empty in it
                there.execute(f"lock table public.{table} in access share mode".encode())
            if there.execute("select to_regclass('pipeline_follower.copies')").fetchone() == (None,):
                return
            found = there.execute(_POSITION, [self._name]).fetchone()
            if found is None:
                return
            epoch, seq, lsn = found
            copied = {table for (table,) in there.execute(_COPIED, [self._name, epoch, lsn or 0]).fetchall()}
            known = columns(there)
            seen = {table: rows(there, table, names) for table, names in known.items() if table not in copied}
        if (epoch, seq) < self._last:
            self._wrong(f"{self._name} has gone back from {self._last} to {(epoch, seq)}")
        self._last = (epoch, seq)
        self.seen["looks"] += 1
        self.seen["looks while a table is copied"] += bool(copied)
        number = log.execute(_NUMBER, [seq]).fetchone()
        if number is not None:
            self._compare(number[0], seq, self._model.after(number[0], KNOWN_SECONDS), seen)

    def _compare(self, number: int, seq: int, wanted: dict[str, Rows], seen: dict[str, Rows]) -> None:
        for table in wanted.keys() & seen.keys():
            common = _names(wanted[table]) & _names(seen[table]) if wanted[table] and seen[table] else set[str]()
            # What DDL gives rows that are there is in no event: it may be found after the first change that shows it.
            common = {name for name in common if not name.startswith(WITHOUT_EVENTS)}
            if _sorted(wanted[table], common) != _sorted(seen[table], common):
                has, lacks = (Counter(_sorted(found[table], common)) for found in (seen, wanted))
                self._wrong(
                    f"{self._name} at seq {seq}, transaction {number}: {table} has {dict(has - lacks)}"
                    f" and lacks {dict(lacks - has)}"
                )


def differences(there: psycopg.Connection, wanted: dict[str, Rows]) -> list[str]:
    """Of all tables and columns, what is not as at the source."""
    known, found = columns(there), []
    for table, expected in wanted.items():
        if table not in known:
            found.append(f"there is no table {table}")
            continue
        names = _names(expected) or set(known[table])
        if missing := names - set(known[table]):
            found.append(f"{table} has no column {', '.join(sorted(missing))}")
        elif _sorted(rows(there, table, known[table]), names) != _sorted(expected, names):
            found.append(f"{table} has other rows")
    return found


def _names(found: Rows) -> set[str]:
    return set(found[0]) if found else set()


def _sorted(found: Rows, names: set[str]) -> list[tuple[tuple[bool, str], ...]]:
    return sorted(tuple((row[name] is None, row[name] or "") for name in sorted(names)) for row in found)
