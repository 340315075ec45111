"""Readers of the log while it is torn at: nothing they have seen may change, vanish or turn out to be half."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from itertools import pairwise
from types import TracebackType
from typing import NamedTuple, Self

import psycopg

_PAUSE = 0.015
"""Seconds between two looks."""
_RECENT = 60
"""Transactions whose counts are looked at again."""
_TABLE = "public.sequin_events"


class Row(NamedTuple):
    """What a reader remembers of an event."""

    seq: int
    commit_lsn: int
    commit_idx: int
    xid: int


class _Reader(ABC):
    """A thread that looks again and again, on a new connection when the pipeline database was away."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=type(self).__name__, daemon=True)
        self.looks = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def fault(self) -> str | None:
        """What this reader should never have seen, or what ended it."""
        return None if self._error is None else f"{type(self).__name__}: {self._error}"

    @abstractmethod
    def _look(self, connection: psycopg.Connection) -> None: ...

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                try:
                    self._look_while_connected()
                except psycopg.OperationalError:
                    time.sleep(_PAUSE)
        except BaseException as error:
            self._error = error

    def _look_while_connected(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            while not self._stop.wait(_PAUSE):
                self._look(connection)
                self.looks += 1


class Follower(_Reader):
    """Reads `where seq > last order by seq`, as users are told to, and remembers everything."""

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self.rows: list[Row] = []
        self._ends: set[int] = set()
        """Where a look ended: each must be the end of a transaction."""

    def _look(self, connection: psycopg.Connection) -> None:
        last = self.rows[-1].seq if self.rows else 0
        query = f"select seq, commit_lsn, commit_idx, xid from {_TABLE} where seq > %s order by seq"
        if found := connection.execute(query, [last]).fetchall():
            self.rows += map(Row._make, found)
            self._ends.add(self.rows[-1].seq)

    def compare(self, log: psycopg.Connection) -> str | None:
        """Call it after the reader's end: the table holds what was seen, row by row, nothing in between."""
        last = self.rows[-1].seq if self.rows else 0
        query = f"select seq, commit_lsn, commit_idx, xid from {_TABLE} where seq <= %s order by seq"
        table = [Row._make(row) for row in log.execute(query, [last])]
        if table != self.rows:
            late, gone = sorted(set(table) - set(self.rows)), sorted(set(self.rows) - set(table))
            return f"a reader of seq > last missed {len(late)} rows: {late[:3]}, and {len(gone)} vanished: {gone[:3]}"
        for row, after in pairwise(table):
            if row.seq in self._ends and row.commit_lsn == after.commit_lsn:
                return f"a reader of seq > last saw the transaction of {row} end there, but {after} belongs to it"
        return None


class CountingReader(_Reader):
    """Counts the events of recent transactions, in one statement; a count that was seen must never change."""

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self._counts: dict[int, int] = {}
        self._starts: deque[int] = deque(maxlen=_RECENT)

    def _look(self, connection: psycopg.Connection) -> None:
        since = self._starts[0] if self._starts else 0
        query = f"select xid, count(*), min(seq) from {_TABLE} where seq >= %s group by xid order by min(seq)"
        found = connection.execute(query, [since]).fetchall()
        missing = set(self._starts) - {first for _, _, first in found}
        assert not missing, f"transactions that began at seq {sorted(missing)[:3]} vanished"
        for xid, count, first in found:
            if xid not in self._counts:
                self._counts[xid] = count
                self._starts.append(first)
            assert self._counts[xid] == count, f"transaction {xid} had {self._counts[xid]} events, then {count}"
