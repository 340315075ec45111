"""Records consumers as the shuffler needs them: what they want, and how much of the log is in their items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

CHANNEL = "pipeline_consumers"
"""NOTIFY channel; the payload is the name of a consumer that may have something to receive."""


@dataclass(frozen=True)
class RecordsConsumer:
    """A consumer of kind records. `folded_seq`: the log up to there is in its items, but for what is `touched`:
    changes of items that a client's open transaction held.
    """

    id: int
    name: str
    tables: list[str]
    actions: list[str]
    group_by: list[str] | None
    folded_seq: int
    touched: bool


def look(connection: Connection) -> list[RecordsConsumer]:
    """All of them, those that are furthest behind first."""
    return _read(connection, "list_consumers", {})


def claim(connection: Connection) -> list[RecordsConsumer]:
    """The same, locked until the transaction ends; without those that an administrative function works on."""
    return _read(connection, "claim_consumers", {"id": None})


def claim_one(connection: Connection, consumer: RecordsConsumer) -> RecordsConsumer | None:
    """This one, locked until the transaction ends; None while an administrative function works on it."""
    return next(iter(_read(connection, "claim_consumers", {"id": consumer.id})), None)


def set_folded(connection: Connection, consumers: Sequence[RecordsConsumer], seq: int) -> None:
    """Say that the log up to `seq` is in the items of these, which are claimed."""
    connection.execute(
        statement("readers.queue", "set_folded"), {"ids": [consumer.id for consumer in consumers], "seq": seq}
    )


def wake(connection: Connection, consumers: Sequence[RecordsConsumer]) -> None:
    """Tell who waits for one of these, when the transaction commits."""
    names = [consumer.name for consumer in consumers]
    connection.execute("select pg_notify(%s, name) from unnest(%s::text[]) name", (CHANNEL, names))


def _read(connection: Connection, name: str, values: dict[str, int | None]) -> list[RecordsConsumer]:
    return queries.rows(connection, RecordsConsumer, statement("readers.queue", name), values)
