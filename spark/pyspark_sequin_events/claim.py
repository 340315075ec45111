"""Claims a cursor consumer for a stream: no other process reads with it, and its position follows the stream.

The rules are those of pipeline/consumers/cursor/leases.py. The consumer's row names its reader and a session, and the
reader's process holds the advisory lock of that session. A reader that is silent for 6 s may be taken for frozen.
"""

from __future__ import annotations

import platform
import signal
import sys
import threading
import time
import uuid
from typing import Any

from adbc_driver_postgresql import dbapi

from pyspark_sequin_events import catalog
from pyspark_sequin_events.database import plain_errors

_LOCK = 1_346_981_969
"""The first half of the key of the lock that shows that a reader's process lives."""
_BEAT_SECONDS = 2.0
_LEAVING_SECONDS = 15.0
"""Seconds for which the process of a query that was killed may still hold the consumer."""
_HELD = f"""exists (
    select from pipeline.advisory_locks l
    where l.key1 = {_LOCK} and l.key2 = pg_catalog.hashtext(split_part(c.reader_session, ':', 1))
)"""
_CLAIM = f"""
    update pipeline.consumers c set reader = $2, reader_session = $3, reader_since = clock_timestamp()
    where c.name = $1 and c.kind = 'cursor' and not {_HELD}
        and set_config('pipeline.reads_events_tables', 'on', true) is not null
    returning c.position"""
_DESCRIBE = """
    select c.kind, c.reader,
        (cardinality(c.tables) + cardinality(c.actions)) as filters,
        (select r.events_table from pipeline.readers r where r.kind = 'consumer' and r.name = c.name) as events_table
    from pipeline.consumers c where c.name = $1"""
_STATE = "select state, reader_session from pipeline.consumers where name = $1"
_RELEASE = """
    update pipeline.consumers set reader = null, reader_session = null, reader_since = null
    where name = $1 and reader_session = $2 returning name"""


class ConsumerClaim:
    """A claim to the consumer `name`, for this process, until `release` or until the process ends."""

    def __init__(self, dsn: str, name: str, events_table: str) -> None:
        """Claim a cursor. Raises ValueError if there is none, or another reader has it, or its events table differs."""
        self.name, self._events_table = name, events_table
        self._session = uuid.uuid4().hex
        self._stopped = threading.Event()
        self._lost: str | None = None
        with plain_errors():
            self._connected = catalog.connect(dsn)
            self._connection = self._connected.__enter__()
        try:
            with plain_errors():
                catalog.rows(
                    self._connection, f"select pg_try_advisory_lock({_LOCK}, hashtext($1)) as locked", (self._session,)
                )
                self.position = self._claim()
        except BaseException:
            self._connected.__exit__(None, None, None)
            raise
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, _end)
        self._beats = threading.Thread(target=self._beat, name=f"consumer {name}", daemon=True)
        self._beats.start()

    def is_paused(self, connection: dbapi.Connection) -> bool:
        """Return True if the consumer is paused. Raises ValueError if this process has lost the consumer."""
        found = catalog.rows(connection, _STATE, (self.name,))
        if self._lost or not found or found[0]["reader_session"] != self._session:
            reason = self._lost or "it was reset or deleted, or taken by another reader"
            raise ValueError(f"sequin_events: consumer {self.name} is lost: {reason}; start the query again")
        return bool(found[0]["state"] == "paused")

    def advance(self, connection: dbapi.Connection, seq: int) -> None:
        """Move the consumer's position to this seq: retention need not keep the events up to it for this consumer."""
        with plain_errors():
            catalog.rows(connection, "select pipeline.advance($1, $2, $3) as position", (self.name, seq, self._session))

    def release(self) -> None:
        """Let other readers use the consumer."""
        self._stopped.set()
        self._beats.join()
        try:
            with plain_errors():
                catalog.rows(self._connection, _RELEASE, (self.name, self._session))
        except ValueError:
            pass  # the session has ended, which releases the consumer, too
        self._connected.__exit__(None, None, None)

    def _claim(self) -> int:
        me = f"Spark on {platform.node()}"
        until = time.monotonic() + _LEAVING_SECONDS
        while True:
            found = self._require_cursor(self._connection)
            taken = catalog.rows(self._connection, _CLAIM, (self.name, me, self._session))
            if taken:
                return int(taken[0]["position"])
            if time.monotonic() > until:
                raise ValueError(f"sequin_events: consumer {self.name} is read by {found['reader']}; end that first")
            time.sleep(0.2)

    def _require_cursor(self, connection: dbapi.Connection) -> dict[str, Any]:
        found = catalog.rows(connection, _DESCRIBE, (self.name,))
        if not found:
            raise ValueError(
                f"sequin_events: there is no consumer {self.name}; create it: `pipeline consumers create {self.name} "
                "--kind cursor`"
            )
        if found[0]["kind"] != "cursor":
            raise ValueError(
                f"sequin_events: consumer {self.name} is of kind {found[0]['kind']}; a stream needs a cursor"
            )
        if found[0]["filters"]:
            raise ValueError(
                f"sequin_events: consumer {self.name} has filters; name a consumer without filters, and give tables "
                "and actions as options of the stream"
            )
        if found[0]["events_table"] not in (None, self._events_table):
            raise ValueError(
                f"sequin_events: consumer {self.name} is of events table {found[0]['events_table']}, and the query "
                f"reads {self._events_table}; read without a consumer, or the same table"
            )
        return found[0]

    def _beat(self) -> None:
        """Show that this process is not frozen, until it has lost its session."""
        while not self._stopped.wait(_BEAT_SECONDS):
            try:
                catalog.rows(self._connection, "select 1 as alive")
            except dbapi.Error as error:
                self._lost = " ".join(str(error).split())
                return


def _end(*_: object) -> None:
    """Exit so that the consumer is released: Spark ends the process of a stream's reader by SIGTERM, sent twice."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(0)
