"""That a table was copied in a snapshot of the source, and which events its rows contain already."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from psycopg import sql

from pipeline.followers.applying.table_versions import HistoryPlace
from pipeline.postgres.queries import statement


@dataclass(frozen=True)
class SnapshotCopy:
    """The rows of a table are those of a snapshot, a pg_snapshot as text, of the source in this epoch.

    `lsn`: the end of WAL read with it. What the snapshot contains has committed before that. `form`: name, type and
    modifier of each column that was published then; None of a table that was dropped by then.
    """

    source_epoch: int
    snapshot: str
    lsn: int
    form: list[list[Any]] | None = None

    @property
    def place(self) -> HistoryPlace:
        """From here on no event is in the copy."""
        return HistoryPlace(self.source_epoch, self.lsn, 0)

    @property
    def contains(self) -> sql.Composable:
        """SQL: whether it contains the event `e`."""
        snapshot = sql.SQL("{}::pg_snapshot").format(sql.Literal(self.snapshot))
        return contains(
            sql.SQL("true"),
            sql.Literal(self.source_epoch),
            sql.Literal(self.lsn),
            snapshot,
            sql.SQL("pg_snapshot_xmax({})::text::bigint").format(snapshot),
        )


def contains(
    is_copied: sql.Composable,
    source_epoch: sql.Composable,
    lsn: sql.Composable,
    snapshot: sql.Composable,
    next_xid: sql.Composable,
) -> sql.Composable:
    """SQL: whether a copy of which this is known contains the event `e`. `next_xid`: that of the snapshot."""
    return sql.SQL(statement("followers.applying", "copy_contains")).format(
        is_copied=is_copied, source_epoch=source_epoch, lsn=lsn, snapshot=snapshot, next_xid=next_xid
    )
