"""First rows of new tables and partitions: what the server reads of those newer than the clients is inserts for them.

A table joins after its first rows were written, so these are `read` events. Clients that were there before the table
would lack them. Of a table that is older than the clients they would be rows that they have not asked for.
"""

from __future__ import annotations

from collections.abc import Iterable

from pipeline.log.shapes import Columns
from pipeline.postgres.pool import Pool
from pipeline.postgres.queries import statement

Reads = tuple[int, int | None]
"""Seqs between which events of a backfill are first rows: after the first one, up to the second; None: it goes on."""

Table = tuple[str, int, int]
"""Source, epoch and oid."""


class FirstRows:
    """Says which `read` events a session is sent. What a backfill has read stays so after its end."""

    def __init__(self, database: Pool) -> None:
        self._database = database
        self._known: dict[Table, list[Reads]] = {}

    async def learn(self, events: Iterable[Columns]) -> None:
        """Ask for the tables of these events, unless they are of backfills that are known to have ended."""
        reads = [event for event in events if event.action == "read"]
        asked = list({_table(event) for event in reads if not self._is_within(event, ended=True)})
        if not asked:
            return
        sources, epochs, oids = (list(each) for each in zip(*asked, strict=True))
        values = {"sources": sources, "epochs": epochs, "oids": oids}
        found = await self._database.rows(statement("wires.walstream", "first_rows"), values)
        self._known |= {table: [] for table in asked}
        for row in found:
            self._known[asked[row["at"] - 1]].append((row["after"], row["upto"]))

    def include(self, event: Columns) -> bool:
        """True if this event is of the first rows of a new table or partition. `learn` must know it."""
        return self._is_within(event)

    def _is_within(self, event: Columns, *, ended: bool = False) -> bool:
        return any(
            after < event.seq and (not ended if upto is None else event.seq <= upto)
            for after, upto in self._known.get(_table(event), ())
        )


def _table(event: Columns) -> Table:
    return event.source, event.epoch, event.table_oid
