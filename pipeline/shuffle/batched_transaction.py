"""A transaction in few messages: a statement that is not waited for travels with the next one that is."""

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
"""Statements that are kept prepared: those of the segment that is being filled, and of the events tables."""

Query = str | sql.Composable
Values = Mapping[str, Any] | Sequence[Any]


@dataclass
class Answer:
    """Of one statement, once it was sent: its rows, and how many it has touched."""

    rows: list[TupleRow] = field(default_factory=list)
    count: int = 0


class Prepared:
    """Statements of one session whose text is parsed and planned once, however often they come.

    The one that was not used for longest goes first, so none that waits to be sent.

    After ROLLBACK, ALTER and DROP psycopg may have deallocated all of a session: a statement that is not there any more
    raises InvalidSqlStatementName; `forget` then, and roll back.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known: dict[str, tuple[str, list[str]]] = {}
        self._made = 0

    def execute(self, what: str, query: sql.Composable, values: Mapping[str, Any]) -> tuple[str, list[Any]]:
        """A statement, and its values, that does what the query would; `what` begins its name.

        The type of each placeholder must be plain.
        """
        text = query.as_string(self._connection)
        known = self._known.pop(text, None)
        self._known[text] = name, given = known or self._prepare(what, text)
        return f"execute {name} ({', '.join(['%s'] * len(given))})", [values[each] for each in given]

    def forget(self) -> None:
        """None of them may be there."""
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


class Together:
    """Statements in their order. `eager`: each goes by itself, at once, in the transaction that there is."""

    def __init__(self, connection: Connection, prepared: Prepared | None = None, *, eager: bool = True) -> None:
        self._cursor = psycopg.ClientCursor(connection)
        self._prepared = prepared
        self._texts: list[str] = []
        self._answers: list[Answer] = []
        self._later: list[str] = []
        self.eager = eager

    def add(self, query: Query, values: Values | None = None) -> Answer:
        """Carried out with the next `ask` or `send`, and answered then."""
        self._texts.append(self._cursor.mogrify(query, values))  # type: ignore[arg-type]
        self._answers.append(Answer())
        answer = self._answers[-1]
        if self.eager:
            self.send()
        return answer

    def add_prepared(self, what: str, query: sql.Composable, values: Mapping[str, Any]) -> Answer:
        """As `add`, for what is likely to come again; `what` is its name on the server."""
        return self.add(*(self._prepared.execute(what, query, values) if self._prepared else (query, values)))

    def ask(self, query: Query, values: Values | None = None) -> Answer:
        """Carried out after all before it, and answered."""
        answer = self.add(query, values)
        self.send()
        return answer

    def later(self, query: Query, values: Values | None = None) -> None:
        """Carried out right behind the commit, in the message that commits; when eager, at once."""
        if self.eager:
            self.add(query, values)
        else:
            self._later.append(self._cursor.mogrify(query, values))  # type: ignore[arg-type]

    def commit(self) -> None:
        """Carry out what waits, and commit."""
        self.add("COMMIT")
        self._texts += self._later
        self._answers += [Answer() for _ in self._later]
        self.send()

    def send(self) -> None:
        """Carry out what waits; needed before anything else is executed on the connection."""
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
def transaction(connection: Connection, prepared: Prepared | None = None) -> Iterator[Together]:
    """As Connection.transaction: BEGIN goes with the first statement, COMMIT with the last.

    The connection must be in autocommit mode, and in no transaction.
    """
    together = Together(connection, prepared, eager=False)
    try:
        together.add("BEGIN")
        yield together
        together.commit()
    except BaseException:
        with suppress(psycopg.OperationalError, psycopg.InterfaceError):  # what went wrong before says more
            if connection.info.transaction_status != TransactionStatus.IDLE:
                connection.execute("ROLLBACK")
        raise
