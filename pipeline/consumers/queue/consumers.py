"""Records consumers as the shuffler needs them: what they want, and up to which seq the log is in their queues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

CHANNEL = "pipeline_consumers"
"""NOTIFY channel; the payload is the name of a consumer that may have something to receive."""
_SET_APPLIED = """\
update pipeline.consumer_progress p set folded_seq = %(seq)s
from pipeline.consumers c
where c.id = any (%(ids)s::int[]) and p.consumer_id = pipeline.progress_id(c)
"""
"""Record that the log up to this seq is in the items of these consumers."""


@dataclass(frozen=True)
class RecordsConsumer:
    """A consumer of kind records. `applied_seq`: the log up to there is in its items.

    `collapse`: an item is a row with its last change; otherwise each event is an item. `has_deferred`: something of it
    could not be settled yet, since a client's open transaction held items. `events_table`: None is the default one.
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


def look(connection: Connection) -> list[RecordsConsumer]:
    """All records consumers, those that lag most first."""
    return _read(connection, "list_consumers", {})


def claim(connection: Connection, consumers: Sequence[RecordsConsumer]) -> list[RecordsConsumer]:
    """These consumers, locked until the transaction ends, without those that an administrative function has locked.

    From here on the transaction finds items by their keys, and its commit does not wait for the disk.
    """
    connection.execute(statement("consumers.queue", "set_planner"))
    return _read(connection, "claim_consumers", {"ids": [consumer.id for consumer in consumers]})


def set_applied(connection: Connection, consumers: Sequence[RecordsConsumer], seq: int) -> None:
    """Record that the log up to `seq` is in the items of these consumers, which are claimed."""
    connection.execute(_SET_APPLIED, {"ids": [consumer.id for consumer in consumers], "seq": seq})


def wake(connection: Connection, consumers: Sequence[RecordsConsumer]) -> None:
    """Wake clients that wait for items of these consumers, when the transaction commits."""
    names = [consumer.name for consumer in consumers]
    connection.execute("select pg_notify(%s, name) from unnest(%s::text[]) name", (CHANNEL, names))


def _read(connection: Connection, name: str, values: dict[str, list[int]]) -> list[RecordsConsumer]:
    return queries.rows(connection, RecordsConsumer, statement("consumers.queue", name), values)
