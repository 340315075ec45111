"""A transaction in few round trips: a statement whose answer is not needed yet is sent with the next one."""

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
"""The most statements kept prepared: those of the segment being filled, and of the events tables."""

Query = str | sql.Composable
Values = Mapping[str, Any] | Sequence[Any]


@dataclass
class StatementResult:
    """The answer to one statement, once it was sent: its rows, and the number of rows affected."""

    rows: list[TupleRow] = field(default_factory=list)
    count: int = 0


class PreparedStatementCache:
    """Prepared statements of one session, parsed and planned once.

    The least recently used one is deallocated first, never one that waits to be sent.

    After ROLLBACK, ALTER and DROP psycopg may have deallocated all of a session: a statement that no longer exists
    raises InvalidSqlStatementName. Then call `forget`, and roll back.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known: dict[str, tuple[str, list[str]]] = {}
        self._made = 0

    def execute(self, what: str, query: sql.Composable, values: Mapping[str, Any]) -> tuple[str, list[Any]]:
        """An EXECUTE statement for the query, with its values; `what` begins the prepared statement's name.

        The type of each placeholder must be plain.
        """
        text = query.as_string(self._connection)
        known = self._known.pop(text, None)
        self._known[text] = name, given = known or self._prepare(what, text)
        return f"execute {name} ({', '.join(['%s'] * len(given))})", [values[each] for each in given]

    def forget(self) -> None:
        """Assume that none of them exists."""
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
    """Statements in their order. `eager`: each is sent at once, in the current transaction."""

    def __init__(
        self, connection: Connection, prepared: PreparedStatementCache | None = None, *, eager: bool = True
    ) -> None:
        self._cursor = psycopg.ClientCursor(connection)
        self._prepared = prepared
        self._texts: list[str] = []
        self._answers: list[StatementResult] = []
        self._later: list[str] = []
        self.eager = eager

    def add(self, query: Query, values: Values | None = None) -> StatementResult:
        """Execute it with the next `ask` or `send`; the answer is filled in then."""
        self._texts.append(self._cursor.mogrify(query, values))  # type: ignore[arg-type]
        self._answers.append(StatementResult())
        answer = self._answers[-1]
        if self.eager:
            self.send()
        return answer

    def add_prepared(self, what: str, query: sql.Composable, values: Mapping[str, Any]) -> StatementResult:
        """As `add`, as a prepared statement, for one that will be used again; `what` begins its name."""
        return self.add(*(self._prepared.execute(what, query, values) if self._prepared else (query, values)))

    def ask(self, query: Query, values: Values | None = None) -> StatementResult:
        """Execute it after all before it, and wait for its answer."""
        answer = self.add(query, values)
        self.send()
        return answer

    def later(self, query: Query, values: Values | None = None) -> None:
        """Execute it right after the commit, in the same round trip; at once when eager."""
        if self.eager:
            self.add(query, values)
        else:
            self._later.append(self._cursor.mogrify(query, values))  # type: ignore[arg-type]

    def commit(self) -> None:
        """Execute what waits, and commit."""
        self.add("COMMIT")
        self._texts += self._later
        self._answers += [StatementResult() for _ in self._later]
        self.send()

    def send(self) -> None:
        """Execute what waits; needed before anything else is executed on the connection."""
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
    """As Connection.transaction, but BEGIN is sent with the first statement, COMMIT with the last.

    The connection must be in autocommit mode, and in no transaction.
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
