"""A reader of the log that polls `seq > last`, and what it must never see."""

from __future__ import annotations

import threading
from contextlib import suppress

import psycopg

from tests.fixtures.waiting import eventually

Row = tuple[int, int, int]
POLL = 0.02
_HEAD = "select coalesce(max(seq), 0) from public.sequin_events"
_NEW = "select seq, commit_lsn, commit_idx from public.sequin_events where seq > %s order by seq"


class Witness:
    """Reads until closed, through crashes of the pipeline database. `seen` is all it was given, in order."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._connection: psycopg.Connection | None = None
        self._thread = threading.Thread(target=self._run, name="witness", daemon=True)
        self.seen: list[Row] = []
        self.wrong: list[str] = []
        self._thread.start()

    @property
    def last(self) -> int:
        """The last seq it was given."""
        return self.seen[-1][0] if self.seen else 0

    def look(self) -> int:
        """Poll now; returns how many rows were new. Raises OperationalError when the database does not answer."""
        with self._lock:
            if self._connection is None or self._connection.closed:
                self._connection = psycopg.connect(self._dsn, autocommit=True)
            head = self._connection.execute(_HEAD).fetchone()
            if head and head[0] < self.last:
                self.wrong.append(f"seq {self.last} was seen and has vanished: the log ends at {head[0]}")
            rows = self._connection.execute(_NEW, [self.last]).fetchall()
            self._take(rows)
            return len(rows)

    def verify(self) -> None:
        """What the log holds now is what was seen, no row more or less; raises AssertionError."""
        self.look()
        with self._lock, psycopg.connect(self._dsn) as connection:
            rows = connection.execute(_NEW, [0]).fetchall()
        late = set(rows) - set(self.seen)
        gone = set(self.seen) - set(rows)
        assert not late, f"rows came late, behind what was read: {sorted(late)[:3]}"
        assert not gone, f"rows were read and have vanished: {sorted(gone)[:3]}"
        assert not self.wrong, self.wrong[0]

    def close(self) -> None:
        """Stop reading."""
        self._stop.set()
        self._thread.join()
        if self._connection is not None:
            self._connection.close()

    def _take(self, rows: list[Row]) -> None:
        if rows and self.seen and rows[0][1] == self.seen[-1][1]:
            self.wrong.append(
                f"half of transaction {rows[0][1]} was seen: seq {rows[0][0]} came later than {self.last}"
            )
        self.seen.extend(rows)

    def _run(self) -> None:
        while not self._stop.wait(POLL):
            with suppress(psycopg.Error):  # the database is down
                self.look()


def sees_more(witness: Witness, than: int) -> None:
    """Returns once it was given something beyond this seq."""

    def look() -> bool:
        witness.look()
        return witness.last > than

    eventually(look, timeout=5)
