"""The transaction of the direct path: one message for a batch of few rows, otherwise two with a COPY."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Any

import psycopg
from psycopg import AsyncConnection, sql
from psycopg.rows import TupleRow

from pipeline.log import table as log
from pipeline.log.staging import segments
from pipeline.log.staging.progress import with_progress
from pipeline.log.staging.worker_claim import WorkerClaim
from pipeline.log.table import EventsTable
from pipeline.log.writing import event_rows
from pipeline.log.writing.log_end import LOCK_TIMEOUT, LOCK_TIMEOUT_MS
from pipeline.postgres import prepared_calls
from pipeline.postgres.pipelined_copy import copy_within, roll_back
from pipeline.postgres.prepared_calls import PreparedStatements
from pipeline.postgres.queries import literals, statement

MOST_INSERTED = 16
"""The most rows that are sent as parameters of one statement; for more rows a COPY costs less."""
_COLUMNS = ", ".join(event_rows.COLUMNS)
_BEGIN = (
    "last_lsn",
    "last_seq",
    "rows",
    "newest_at",
    "committed_at",
    "epoch",
    "after",
    "position",
    "commit_lsn",
    "transactions",
)
_END = ("last_seq", "rows", "routes", "oid", "partition")
_pack = Struct(">q").pack
_LIMIT_AT_HEAD = "select set_config('lock_timeout', %(timeout)s, true), set_config('synchronous_commit', 'on', true)"
"""Limit the time that this transaction waits for a lock, and make its commit wait until it is on disk."""


class DirectTransaction:
    """Writes batches on one connection, with prepared statements whose names contain the generation of the claim."""

    def __init__(self, connection: AsyncConnection[TupleRow], claim: WorkerClaim, table: EventsTable) -> None:
        self._connection = connection
        self._table = table
        self._statements = PreparedStatements(connection, str(claim.generation), first="limit_at_head")
        self._who = {
            **literals(
                source=claim.source,
                generation=claim.generation,
                sequence=table.sequence.as_string(connection),
                name=str(table),
                timeout=LOCK_TIMEOUT_MS,
                staged=segments.STAGED_CHANNEL,
                open_lsn=None,
                open_changes=0,
                channel=log.CHANNEL,
            ),
            "table": table.identifier.as_string(connection),
            "columns": _COLUMNS,
        }
        self._texts = {name: self._text(name) for name in _TEXTS}
        self.read_end = f"execute {self._statements.name('log_end')}"
        """The statement that reads the end of the log."""

    async def prepare(self) -> None:
        """Prepare the statements that are not prepared yet; if one waits for a lock, the next call tries it again."""
        await self._statements.prepare(self._texts)

    async def write(self, values: Mapping[str, Any], events: Sequence[bytes], *, wakes_shuffler: bool) -> bool:
        """Write these events, with the progress and watermark of `values`; False if these have changed since.

        Readers are woken after the COMMIT: a transaction with a NOTIFY would delay all others that have one.
        """
        if len(events) <= MOST_INSERTED:
            return await self._insert(values, events, wakes_shuffler=wakes_shuffler)
        return await self._copy(values, events, wakes_shuffler=wakes_shuffler)

    async def _insert(self, values: Mapping[str, Any], events: Sequence[bytes], *, wakes_shuffler: bool) -> bool:
        fields = [field for event in events for field in event_rows.fields(event)]
        name, call = f"insert_at_head_{len(events)}", self._statements.call
        if name not in self._texts:
            self._texts[name] = self._insert_text(len(events))
            await self.prepare()
        insert = call(name, [*_packed(values, _BEGIN), *fields])
        write = [call("limit_at_head"), insert, call("end_at_head", _packed(values, _END))]
        last_seq = values["last_seq"]
        wake = [call("wake_readers_at_head", [self._payload(last_seq), str(last_seq).encode()])]
        if wakes_shuffler:  # the shuffler makes items
            wake.append(call("wake_shuffler_at_head"))
        try:
            await prepared_calls.run_transactions(self._connection, write, wake)
        except psycopg.errors.DivisionByZero:  # insert_at_head
            return False
        return True

    async def _copy(self, values: Mapping[str, Any], events: Sequence[bytes], *, wakes_shuffler: bool) -> bool:
        begin, end = (", ".join([str(values[name]) for name in names]) for names in (_BEGIN, _END))
        payload = sql.Literal(self._payload(values["last_seq"]).decode()).as_string()
        wake = f"; notify {segments.STAGED_CHANNEL}" if wakes_shuffler else ""
        name = self._statements.name
        statements = (
            f"BEGIN; {LOCK_TIMEOUT}; set local synchronous_commit = on; execute {name('begin_at_head')}({begin})"
            f"; copy {self._who['table']} ({_COLUMNS}) from stdin (format binary)"
            f"; execute {name('end_at_head')}({end}); COMMIT; notify {log.CHANNEL}, {payload}{wake}"
        )
        if await copy_within(self._connection, statements, events) is None:
            await roll_back(self._connection)
            return False
        return True

    def _payload(self, last_seq: int) -> bytes:
        return log.notification(self._table, last_seq)[1].encode()

    def _text(self, name: str) -> str:
        given, text = _TEXTS[name]
        numbers = {each: f"${number}::bigint" for number, each in enumerate(given, 1)}
        return text % {**self._who, **numbers, "then": "select 1 from stored"}

    def _insert_text(self, events: int) -> str:
        types, first = list(event_rows.COLUMNS.values()), len(_BEGIN) + 1
        width = len(types)
        given = [
            ", ".join([f"${first + row * width + place}::{type_}" for place, type_ in enumerate(types)])
            for row in range(events)
        ]
        numbers = {each: f"${number}::bigint" for number, each in enumerate(_BEGIN, 1)}
        values = {**self._who, **numbers, "events": ", ".join(f"({row})" for row in given), "count": events}
        then = statement("log.writing", "insert_at_head") % values
        return _TEXTS["begin_at_head"][1] % {**values, "then": then}


def _packed(values: Mapping[str, Any], names: Sequence[str]) -> list[bytes]:
    return [_pack(values[name]) for name in names]


_TEXTS: Mapping[str, tuple[Sequence[str], str]] = {
    "limit_at_head": ((), _LIMIT_AT_HEAD),
    "begin_at_head": (_BEGIN, with_progress("log.staging.frontier", "begin_at_head")),
    "end_at_head": (_END, statement("log.writing", "end_at_head")),
    "log_end": ((), statement("log.staging.frontier", "log_end")),
    "wake_readers_at_head": ((), statement("log.writing", "wake_readers_at_head")),
    "wake_shuffler_at_head": ((), "select pg_notify(%(staged)s, '')"),
}
"""The statements, each with the names of its numeric parameters."""
