"""Keys that are read once more: their newest event leaves a value out that is nowhere in the log.

A row that moves into a block that was read before it is never read; the update that moved it is in the log, but without
the large values that it left alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from psycopg import sql

from pipeline.capture.schema_history.versions import TableVersion
from pipeline.capture.snapshot.backfills import Backfill
from pipeline.log.table import EventsTable
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

KEYS_PER_RANGE = 1_000
_JSON = (114, 3802)


@dataclass
class Round:
    """How far unresolved keys were looked for, of one backfill.

    `begun`: seqs by events table at which the backfill began. Up to `since` all keys are settled, but for `left_out`:
    the log had something newer of them than what was read, which may lack the same values.
    """

    begun: Mapping[str, int]
    since: Mapping[str, int] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    def begin(self, seqs: Mapping[str, int]) -> None:
        """Keys were looked for after these seqs had been read; they are being read now."""
        self.since, self.left_out = seqs, []


def keys(
    connection: Connection,
    backfill: Backfill,
    version: TableVersion,
    last: Round,
    written: Sequence[EventsTable],
) -> list[list[str]]:
    """The keys of such rows, as texts in the order of the version's key."""
    types = {column.name: column.base_type_oid for column in version.columns}
    key = sql.SQL("array[{}]").format(sql.SQL(", ").join(_part(name, types[name]) for name in version.key_columns))
    newest = sql.SQL(" ").join(
        sql.SQL(statement("capture.snapshot", "no_newer")).format(events=table.identifier) for table in written
    )
    each = sql.SQL(statement("capture.snapshot", "unresolved"))
    found = sql.SQL("\nunion\n").join(
        each.format(
            key=key,
            events=table.identifier,
            begun=sql.Literal(last.begun.get(str(table), 0)),
            since=sql.Literal(last.since.get(str(table), 0)),
            newest=newest,
        )
        for table in written
    )
    values: dict[str, object] = {"source": backfill.source_id, "epoch": backfill.epoch, "table": backfill.table_oid}
    values["left_out"] = last.left_out
    return [list(row[0]) for row in connection.execute(found, values).fetchall() if None not in row[0]]


def _part(name: str, type_oid: int) -> sql.Composable:
    if type_oid in _JSON:
        return sql.SQL("(e.record -> {})::text").format(sql.Literal(name))
    return sql.SQL("e.record ->> {}").format(sql.Literal(name))
