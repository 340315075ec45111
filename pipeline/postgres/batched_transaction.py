"""A transaction in few round trips: a statement whose answer is not needed yet is sent together with the next one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow

from pipeline.postgres.connections import Connection

PREPARED = 16
"""The most statements that stay prepared: those for the segment that is being filled, and those for events tables."""

Query = str | sql.Composable
Values = Mapping[str, Any] | Sequence[Any]


@dataclass
class StatementResult:
    """The answer to one statement: its rows, and the number of affected rows. Empty until the statement was sent."""

    rows: list[TupleRow] = field(default_factory=list)
    count: int = 0


class PreparedStatementCache:
    """The prepared statements of one session, each parsed and planned once.

    If there are too many, the least recently used one is deallocated, but never one that waits to be sent.

    After ROLLBACK, ALTER and DROP psycopg may have deallocated all statements of a session. A statement that no longer
    exists raises InvalidSqlStatementName: then call `forget`, and roll back.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known: dict[str, tuple[str, list[str]]] = {}
        self._made = 0

    def execute(self, what: str, query: sql.Composable, values: Mapping[str, Any]) -> tuple[str, list[Any]]:
        """Return an EXECUTE statement for the query, and its values. `what` begins the prepared statement's name.

        Postgres must be able to infer the type of each placeholder from the query.
        """
        text = query.as_string(self._connection)
        known = self._known.pop(text, None)
        self._known[text] = name, given = known or self._prepare(what, text)
        return f"execute {name} ({', '.join(['%s'] * len(given))})", [values[each] for each in given]

    def forget(self) -> None:
        """Assume that the session has no prepared statement."""
        self._known.clear()

    def _prepare(self, what: str, text: str) -> tuple[str, list[str]]:
        if len(self._known) >= PREPARED:
            name, _ = self._known.pop(next(iter(self._known)))
            self._connection.execute(f"deallocate {name}".encode())
        self._made += 1
        name, numbers = f"{what}_{self._made}", _Numbers()
        self._connection.execute(f"prepare {name} as {text % numbers}".encode())
        return name, list(numbers)


class _Numbers(dict[str, str]):
    def __missing__(self, name: str) -> str:
        self[name] = f"${len(self) + 1}"
        return self[name]


class StatementBatch:
    """Statements that are executed in their order. If `eager`, each is sent at once, in the current transaction."""

    def __init__(
        self, connection: Connection, prepared: PreparedStatementCache | None = None, *, eager: bool = True
    ) -> None:
        self._cursor = psycopg.ClientCursor(connection)
        self._prepared = prepared
        self._texts: list[str] = []
        self._answers: list[StatementResult] = []
        self._after_commit: list[str] = []
        self.eager = eager

    def add(self, query: Query, values: Values | None = None) -> StatementResult:
        """Add a statement, which the next `ask` or `send` executes; only then the returned answer is filled in."""
        self._texts.append(self._cursor.mogrify(query, values))  # type: ignore[arg-type]
        self._answers.append(StatementResult())
        answer = self._answers[-1]
        if self.eager:
            self.send()
        return answer

    def add_prepared(self, what: str, query: sql.Composable, values: Mapping[str, Any]) -> StatementResult:
        """Add a statement that will be used again, as a prepared one. `what` begins its name; otherwise as `add`."""
        return self.add(*(self._prepared.execute(what, query, values) if self._prepared else (query, values)))

    def ask(self, query: Query, values: Values | None = None) -> StatementResult:
        """Execute all statements that wait, then this one, and wait for its answer."""
        answer = self.add(query, values)
        self.send()
        return answer

    def add_after_commit(self, query: Query, values: Values | None = None) -> None:
        """Add a statement that is executed right after the commit, in the same round trip; if eager, at once."""
        if self.eager:
            self.add(query, values)
        else:
            self._after_commit.append(self._cursor.mogrify(query, values))  # type: ignore[arg-type]

    def commit(self) -> None:
        """Execute all statements that wait, and commit."""
        self.add("COMMIT")
        self._texts += self._after_commit
        self._answers += [StatementResult() for _ in self._after_commit]
        self.send()

    def send(self) -> None:
        """Execute all statements that wait. Call this before anything else is executed on the connection."""
        if not self._texts:
            return
        text, answers = "\n;\n".join(self._texts), self._answers
        self._texts, self._answers = [], []
        self._cursor.execute(text.encode())
        for answer in answers:
            answer.count = self._cursor.rowcount
            answer.rows = self._cursor.fetchall() if self._cursor.description else []
            self._cursor.nextset()


@contextmanager
def transaction(connection: Connection, prepared: PreparedStatementCache | None = None) -> Iterator[StatementBatch]:
    """Hold a transaction whose BEGIN is sent with the first statement and whose COMMIT is sent with the last one.

    Otherwise it does what psycopg's `Connection.transaction` does. The connection must be in autocommit mode, and in no
    transaction.
    """
    batch = StatementBatch(connection, prepared, eager=False)
    try:
        batch.add("BEGIN")
        yield batch
        batch.commit()
    except BaseException:
        with suppress(psycopg.OperationalError, psycopg.InterfaceError):  # the first error is the one to report
            if connection.info.transaction_status != TransactionStatus.IDLE:
                connection.execute("ROLLBACK")
        raise
