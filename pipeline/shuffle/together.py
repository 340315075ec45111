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

from pipeline.db import Connection

Query = str | sql.Composable
Values = Mapping[str, Any] | Sequence[Any]


@dataclass
class Answer:
    """Of one statement, once it was sent: its rows, and how many it has touched."""

    rows: list[TupleRow] = field(default_factory=list)
    count: int = 0


class Together:
    """Statements in their order. `eager`: each goes by itself, at once, in the transaction that there is."""

    def __init__(self, connection: Connection, *, eager: bool = True) -> None:
        self._cursor = psycopg.ClientCursor(connection)
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
def transaction(connection: Connection) -> Iterator[Together]:
    """As Connection.transaction: BEGIN goes with the first statement, COMMIT with the last.

    The connection must be in autocommit mode, and in no transaction.
    """
    together = Together(connection, eager=False)
    try:
        together.add("BEGIN")
        yield together
        together.commit()
    except BaseException:
        with suppress(psycopg.OperationalError, psycopg.InterfaceError):  # what went wrong before says more
            if connection.info.transaction_status != TransactionStatus.IDLE:
                connection.execute("ROLLBACK")
        raise
