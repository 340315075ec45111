"""Find unresolved keys, which must be read again: their newest event omits a value that no event in the log has.

A row that moves into a block that was already read is never read. The log has the update that moved it, but without the
large values that the update left unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from psycopg import sql

from pipeline.capture.schema_history.versions import HistoryVersion
from pipeline.log.table import EventsTable
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.snapshots.backfills import StoredBackfill

KEYS_PER_RANGE = 1_000
_JSON = (114, 3802)


@dataclass
class UnresolvedKeySearch:
    """How far one backfill has searched for unresolved keys.

    `begun`: seqs by events table at which the backfill began. Up to `since` all keys are settled, except `left_out`:
    keys of which the log had a newer event than the row that was read; that event may lack the same values.
    """

    begun: Mapping[str, int]
    since: Mapping[str, int] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    def begin(self, seqs: Mapping[str, int]) -> None:
        """Store that the keys up to these seqs are being read now."""
        self.since, self.left_out = seqs, []


def keys(
    connection: Connection,
    backfill: StoredBackfill,
    version: HistoryVersion,
    last: UnresolvedKeySearch,
    written: Sequence[EventsTable],
) -> list[list[str]]:
    """Return the unresolved keys, as texts in the order of the version's key."""
    types = {column.name: column.base_type_oid for column in version.columns}
    names = {f"key_{number}": name for number, name in enumerate(version.key_columns)}
    key = sql.SQL("array[{}]").format(sql.SQL(", ").join(_part(each, types[name]) for each, name in names.items()))
    newest = sql.SQL(" ").join(
        sql.SQL(statement("snapshots", "no_newer")).format(events=table.identifier) for table in written
    )
    each = sql.SQL(statement("snapshots", "unresolved"))
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
    values = {
        "source": backfill.source_id,
        "epoch": backfill.epoch,
        "table": backfill.table_oid,
        "left_out": last.left_out,
        **names,
    }
    return [list(row[0]) for row in connection.execute(found, values).fetchall() if None not in row[0]]


def _part(name: str, type_oid: int) -> sql.Composable:
    """Return the SQL for the text of a key column. `name`: the placeholder for the column's name."""
    text = "(e.record -> {}::text)::text" if type_oid in _JSON else "e.record ->> {}::text"
    return sql.SQL(text).format(sql.Placeholder(name))
