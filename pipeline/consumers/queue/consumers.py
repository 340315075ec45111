"""Records consumers as the shuffler needs them: their filters, and up to which seq the log is in their queues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

CHANNEL = "pipeline_consumers"
"""The NOTIFY channel; its payload is the name of a consumer that may have items to receive."""
_SET_APPLIED = """\
update pipeline.consumer_progress p set folded_seq = %(seq)s
from pipeline.consumers c
where c.id = any (%(ids)s::int[]) and p.consumer_id = pipeline.progress_id(c)
"""
"""SQL that records up to which seq the log is in the items of these consumers."""


@dataclass(frozen=True)
class RecordsConsumer:
    """A consumer of kind records. `applied_seq`: the log up to this seq is in its items.

    `collapse`: an item is a row with its last change; otherwise each event is an item. `has_deferred`: some of its
    changes are deferred, because another transaction had locked items. `events_table`: None is the default one.
    """

    id: int
    name: str
    tables: list[str]
    actions: list[str]
    group_by: list[str] | None
    collapse: bool
    events_table: str | None
    applied_seq: int
    has_deferred: bool


def list_consumers(connection: Connection) -> list[RecordsConsumer]:
    """Return all records consumers, the one that lags most first."""
    return _query_consumers(connection, "list_consumers", {})


def claim(connection: Connection, consumers: Sequence[RecordsConsumer]) -> list[RecordsConsumer]:
    """Lock these consumers until the transaction ends; return them without those that another session has locked.

    After this call the transaction finds items by their keys, and its commit does not wait for the disk.
    """
    connection.execute(statement("consumers.queue", "set_planner"))
    return _query_consumers(connection, "claim_consumers", {"ids": [consumer.id for consumer in consumers]})


def set_applied_seq(connection: Connection, consumers: Sequence[RecordsConsumer], seq: int) -> None:
    """Record that the log up to `seq` is in the items of these consumers, which the transaction has claimed."""
    connection.execute(_SET_APPLIED, {"ids": [consumer.id for consumer in consumers], "seq": seq})


def wake_clients(connection: Connection, consumers: Sequence[RecordsConsumer]) -> None:
    """Wake the clients that wait for items of these consumers, when the transaction commits."""
    names = [consumer.name for consumer in consumers]
    connection.execute("select pg_notify(%s, name) from unnest(%s::text[]) name", (CHANNEL, names))


def _query_consumers(connection: Connection, name: str, values: dict[str, list[int]]) -> list[RecordsConsumer]:
    return queries.rows(connection, RecordsConsumer, statement("consumers.queue", name), values)
