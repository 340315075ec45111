"""The demo's reader: follows the log live by `seq`, woken by NOTIFY; reads all of it, and the WAL, for the check."""

from __future__ import annotations

import re
import subprocess
import threading
import time
from array import array
from collections import Counter
from collections.abc import Iterator
from typing import Any

import psycopg

from pipeline.demo.verdict import ReceivedEvent, RowChange
from pipeline.errors import PipelineError
from pipeline.log.table import CHANNEL, DEFAULT, last_seq
from pipeline.postgres import connections, queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.embedded import EmbeddedServer
from pipeline.postgres.queries import statement

MARK = "demo"
"""The prefix of the messages that mark the beginning and end of a run in the WAL."""
_FOLLOW_EVENTS = """\
select seq, xid, source_table_name, action, case when action = 'message' then record ->> 'content' end
from public.sequin_events where seq > %(seq)s order by seq limit 1000
"""
"""Read the events after `seq`, in order, as any SQL reader follows the log."""
_SNAPSHOTS = """\
select coalesce(sum(s.rows), 0)::bigint, count(*) filter (where s.complete_seq is not null)
from pipeline.snapshots s where s.table_oid = any(%(tables)s)
"""
"""Count the existing rows that were read, and the tables that are not complete yet."""


class DemoReader(threading.Thread):
    """Reads `where seq > $last order by seq`, as any SQL reader does, and records what it read and when."""

    def __init__(self, dsn: str, begin: str) -> None:
        """`begin`: the mark after which counting starts; events of an earlier run may come before it."""
        super().__init__(name="follower", daemon=True)
        self._begin = begin
        self._connection = connections.connect(dsn, "pipeline database", name="demo follower")
        self._connection.execute(f"listen {CHANNEL}")
        self._last = last_seq(self._connection, DEFAULT)
        self._stopping = threading.Event()
        self.failure: str | None = None
        self.seqs = array("q")
        self.counts: Counter[tuple[str, str]] = Counter()
        self.marks: dict[str, int] = {}
        self.arrived: dict[int, float] = {}
        """The time at which the first event of each transaction arrived."""

    def run(self) -> None:
        """Follow until stopped."""
        try:
            while not self._stopping.is_set():
                while self._read():
                    continue
                for _ in self._connection.notifies(timeout=0.5, stop_after=1):
                    pass
        except psycopg.Error as error:
            self.failure = f"lost the connection to the pipeline database: {connections.one_line(error)}"
        finally:
            self._connection.close()

    def stop(self) -> None:
        """Stop, within half a second."""
        self._stopping.set()
        if self.is_alive():
            self.join()

    def wait_for(self, mark: str, seconds: float) -> bool:
        """Return True if a mark arrives within `seconds`. Raises PipelineError if the reader has failed."""
        deadline = time.monotonic() + seconds
        while mark not in self.marks:
            if self.failure:
                raise PipelineError(self.failure)
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def _read(self) -> int:
        rows = self._connection.execute(_FOLLOW_EVENTS, {"seq": self._last}).fetchall()
        now = time.monotonic()
        for seq, xid, table, action, content in rows:
            if action == "message" and table == MARK:
                self.marks[content] = seq
            elif self._begin in self.marks:
                self.seqs.append(seq)
                self.counts[table, action] += 1
                self.arrived.setdefault(xid, now)
        self._last = rows[-1][0] if rows else self._last
        return len(rows)


def mark(source: Connection, name: str) -> str:
    """Write a message into the source's WAL, which becomes an event; returns its LSN."""
    return str(queries.value(source, "select pg_logical_emit_message(true, %s, %s)::text", (MARK, name)))


def read_events(connection: Connection, after: int, until: int, tables: list[int]) -> Iterator[ReceivedEvent]:
    """Read the log between two positions, and earlier events of these tables, in pieces because the log may be long."""
    with connection.transaction(), connection.cursor(name="demo_events") as cursor:
        cursor.itersize = 5000
        cursor.execute(statement("demo", "read_events"), {"after": after, "until": until, "tables": tables})
        for seq, lsn, idx, xid, table, action, key, values, old in cursor:
            yield ReceivedEvent(seq, lsn, idx, xid, RowChange(table, action, tuple(key), values, old))


def commit_lsns(postgres: EmbeddedServer, start: str, end: str) -> dict[int, int]:
    """Return where pg_waldump finds each transaction's commit; empty if that part of the WAL no longer exists."""
    done = subprocess.run(
        [postgres.bin_dir / "pg_waldump", "-p", postgres.data / "pg_wal", "-r", "Transaction", "-s", start, "-e", end],
        capture_output=True,
        text=True,
    )
    found = re.findall(r"tx:\s+(\d+), lsn: ([0-9A-F]+)/([0-9A-F]+), .*desc: COMMIT ", done.stdout)
    return {} if done.returncode else {int(xid): int(high, 16) << 32 | int(low, 16) for xid, high, low in found}


def rows_read(connection: Connection, tables: list[int]) -> tuple[int, int]:
    """Return the number of existing rows that are events, and of these tables that are complete in the log."""
    row = connection.execute(_SNAPSHOTS, {"tables": tables}).fetchone()
    return (row[0], row[1]) if row else (0, 0)


def latest(connection: Connection, after: int, rows: int) -> list[tuple[Any, ...]]:
    """Return the newest events, newest first: seq, table, action, record_pk, record, changes."""
    return connection.execute(statement("demo", "latest_events"), {"seq": after, "rows": rows}).fetchall()
