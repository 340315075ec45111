"""First rows of new tables: what the server has read of a table that is newer than the clients is an insert for them.

A table joins after its first rows were written, so these are `read` events. Clients that were there before the table
would lack them. Of a table that is older than the clients they would be rows that they have not asked for.
"""

from __future__ import annotations

from collections.abc import Iterable

from pipeline.postgres.pool import Pool
from pipeline.postgres.queries import statement
from pipeline.readers.cursor.shapes import Columns

Table = tuple[str, int, int]
"""Source, epoch and oid."""
_NONE = 0


class FirstRows:
    """Says which `read` events a session is sent. What is known of a table stays true for as long as its session."""

    def __init__(self, database: Pool) -> None:
        self._database = database
        self._upto: dict[Table, int | None] = {}

    async def learn(self, events: Iterable[Columns]) -> None:
        """Ask for the tables of these events that are not known, or whose first backfill was going on."""
        tables = {_table(event) for event in events if event.action == "read"}
        asked = [table for table in tables if self._upto.get(table) is None]
        if not asked:
            return
        sources, epochs, oids = (list(each) for each in zip(*asked, strict=True))
        values = {"sources": sources, "epochs": epochs, "oids": oids}
        found = await self._database.rows(statement("rpc.walstream", "first_rows"), values)
        self._upto |= dict.fromkeys(asked, _NONE)
        self._upto |= {asked[row["at"] - 1]: row["upto"] for row in found}

    def include(self, event: Columns) -> bool:
        """True if this event is of a new table's first rows. `learn` must know it."""
        upto = self._upto[_table(event)]
        return upto is None or event.seq <= upto


def _table(event: Columns) -> Table:
    return event.source, event.epoch, event.table_oid
