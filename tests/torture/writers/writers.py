"""The writers: carry a plan's steps out, each connection in its own thread, through crashes of the source."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from types import TracebackType

import psycopg

from tests.torture.oracle.model import Model, Transaction, change_of
from tests.torture.plan.kinds import ODD_LANES
from tests.torture.plan.plan import Change, Step
from tests.torture.plan.statements import LANES, RUSHING_LANE
from tests.torture.writers.odd_table_writer import SESSION as ODD_SESSION
from tests.torture.writers.odd_table_writer import OddTableWriter

BACK_WITHIN = 60.0
"""Seconds that a crashed source gets to come back."""
_SESSION = "-c TimeZone=UTC -c DateStyle=ISO -c lock_timeout=30s"
_ASYNCHRONOUS = (LANES, max(ODD_LANES))
_NOT_NOW = (
    psycopg.errors.LockNotAvailable,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.UndefinedTable,
    psycopg.errors.UndefinedObject,
)
_DEAD = ("57P01", "57P02", "57P03", "08000", "08003", "08006")


class WorkerPool:
    """All connections. Steps of different ones run at the same time; those of one run in the order given."""

    def __init__(self, dsn: str, model: Model, tally: Counter[str]) -> None:
        """`tally`: what was done to the odd tables."""
        numbers = (*range(1, LANES + 1), *ODD_LANES, RUSHING_LANE)
        self._lanes = {number: _Lane(dsn, model, number, OddTableWriter(tally)) for number in numbers}
        self._running: dict[int, Future[None]] = {}
        self._prepared_by: dict[int, int] = {}
        self._pool = ThreadPoolExecutor(len(numbers), "writer")

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._pool.shutdown()
        for lane in self._lanes.values():
            lane.close()

    def take(self, step: Step) -> None:
        """Begin a step once what must come before it is over. Raises what an earlier step of that connection raised."""
        self._wait(step.connection)
        if step.kind == "prepare":
            self._prepared_by[step.transaction] = step.connection
        if step.kind in ("commit prepared", "rollback prepared"):
            self._wait(self._prepared_by.get(step.transaction, step.connection))
        self._running[step.connection] = self._pool.submit(self._lanes[step.connection].run, step)

    def finish(self) -> None:
        """Until all steps are over."""
        for connection in list(self._running):
            self._wait(connection)

    def _wait(self, connection: int) -> None:
        if running := self._running.pop(connection, None):
            running.result()


class _Lane:
    """One connection. A transaction that a crash took is left, the next one begins on a new connection."""

    def __init__(self, dsn: str, model: Model, number: int, odd_tables: OddTableWriter) -> None:
        self._dsn = dsn
        self._model = model
        self._odd_tables = odd_tables
        self._odd = number in ODD_LANES
        self._options = f"{_SESSION} {ODD_SESSION}" if self._odd else _SESSION
        # A commit that is not waited for may be lost by a crash, and then its events must not be there either.
        self._synchronous = number not in _ASYNCHRONOUS
        self._connection: psycopg.Connection | None = None
        self._open: Transaction | None = None
        self._savepoints: list[tuple[str, int]] = []

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def run(self, step: Step) -> None:
        """Carry one step out, unless its transaction has ended."""
        if step.kind == "begin":
            self._begin(step)
        elif step.kind in ("commit prepared", "rollback prepared"):
            self._resolve(step)
        elif step.kind == "outside":
            self._outside(step)
        elif step.kind == "maintain":
            self._maintain(step)
        elif self._open is not None and self._open.number == step.transaction:
            self._continue(step, self._open)

    def _begin(self, step: Step) -> None:
        self._open, self._savepoints = None, []
        try:
            connection = self._connected()
            connection.execute("begin")
            end = connection.execute("select (pg_current_wal_insert_lsn() - '0/0')::bigint").fetchone()
            row = connection.execute(f"{step.sql} returning pg_current_xact_id()::text").fetchone()
            assert row is not None and end is not None
            self._open = self._model.begin(step.transaction, int(row[0]), end[0])
            table = step.sql.split()[2]
            if table.startswith("public."):
                number = str(step.transaction)
                self._open.changes.append(Change(table, "insert", number, {"n": number}))
        except psycopg.Error as error:
            self._lost(error)

    def _continue(self, step: Step, transaction: Transaction) -> None:
        try:
            if step.kind in ("commit", "rollback", "prepare"):
                self._end(step, transaction)
            elif step.kind == "change":
                self._change(step, transaction)
            elif step.kind == "deed":
                self._odd_tables.deed(self._connected(), step.sql)
            else:
                self._savepoint(step, transaction)
        except psycopg.errors.UndefinedTable:  # a crash took the transaction that made it
            self._connected().execute("rollback")
            transaction.fate, self._open = "rolled back", None
        except psycopg.Error as error:
            self._lost(error)

    def _maintain(self, step: Step) -> None:
        """Between two transactions, unless another session holds a conflicting lock."""
        try:
            connection = self._connected()
            connection.execute("set lock_timeout = '200ms'")
            with suppress(*_NOT_NOW):
                connection.execute(step.sql)
            connection.execute("reset lock_timeout")
        except psycopg.Error as error:
            self._lost(error)

    def _change(self, step: Step, transaction: Transaction) -> None:
        with self._connected().cursor() as cursor:
            if step.data:
                with cursor.copy(step.sql) as copy:
                    copy.write(step.data)
            else:
                cursor.execute(step.sql)
            if step.effect is not None:
                transaction.changes += [change_of(step.effect, row) for row in cursor]
        transaction.changes += step.changes

    def _savepoint(self, step: Step, transaction: Transaction) -> None:
        names = [name for name, _ in self._savepoints]
        if step.kind != "savepoint" and step.name not in names:
            return  # only in a plan that was cut down
        self._connected().execute(step.sql)
        if step.kind == "savepoint":
            self._savepoints.append((step.name, len(transaction.changes)))
            return
        at = len(names) - 1 - names[::-1].index(step.name)
        if step.kind == "rollback to":
            del transaction.changes[self._savepoints[at][1] :]
        del self._savepoints[at + (step.kind == "rollback to") :]

    def _outside(self, step: Step) -> None:
        try:
            self._odd_tables.outside(self._connected(), step.sql)
        except psycopg.Error as error:
            self._lost(error)

    def _end(self, step: Step, transaction: Transaction) -> None:
        if self._odd and step.kind != "rollback" and not self._odd_tables.settle(self._connected()):
            step = replace(step, kind="rollback", sql="rollback")
        # If the connection is lost now, the source alone knows; a transaction that was prepared may be, or may not be.
        transaction.fate = "prepared" if step.kind == "prepare" else "unknown"
        self._open = None
        try:
            self._connected().execute(step.sql)
        except psycopg.errors.FeatureNotSupported:  # it has touched a temporary table: nothing can prepare it
            self._connected().execute("rollback")
        if step.kind == "rollback":
            transaction.fate = "rolled back"
        elif step.kind == "commit" and self._synchronous:
            transaction.fate = "committed"

    def _resolve(self, step: Step) -> None:
        """COMMIT PREPARED or ROLLBACK PREPARED, until it has happened; nothing where the PREPARE was lost."""
        transaction = self._model.transactions.get(step.transaction)
        if transaction is None or transaction.fate != "prepared":
            return
        deadline = time.monotonic() + BACK_WITHIN
        while time.monotonic() < deadline:
            try:
                connection = self._connected()
                if connection.execute("select from pg_prepared_xacts where gid = %s", [step.name]).fetchone() is None:
                    transaction.fate = "unknown"  # lost before it was prepared, or ended just before the crash
                    return
                connection.execute(step.sql)
                transaction.fate = "unknown"
                if self._synchronous:
                    transaction.fate = "committed" if step.kind == "commit prepared" else "rolled back"
                return
            except psycopg.Error as error:
                self._lost(error)
        raise TimeoutError(f"{step} does not end within {BACK_WITHIN:.0f} s")

    def _connected(self) -> psycopg.Connection:
        if self._connection is None:
            deadline = time.monotonic() + BACK_WITHIN
            while self._connection is None:
                try:
                    self._connection = psycopg.connect(self._dsn, autocommit=True, options=self._options)
                except psycopg.OperationalError:
                    if time.monotonic() > deadline:
                        raise TimeoutError(f"the source was not back within {BACK_WITHIN:.0f} s") from None
                    time.sleep(0.05)
            if not self._synchronous:
                self._connection.execute("set synchronous_commit = off")
        return self._connection

    def _lost(self, error: psycopg.Error) -> None:
        """The connection is gone, and with it the open transaction; raises any other error."""
        gone = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        if not gone or not (error.sqlstate is None or error.sqlstate in _DEAD):
            raise error
        if self._connection is not None:
            self._connection.close()
        self._connection, self._open = None, None
