"""Describes the copy of a table: the snapshot of the source that was copied, and which events its rows contain."""

from __future__ import annotations

from dataclasses import dataclass

from psycopg import sql

from pipeline.followers.applying.table_versions import CopiedColumns, HistoryPlace
from pipeline.postgres.queries import statement


@dataclass(frozen=True)
class SnapshotCopy:
    """The copy of a table as of a snapshot of the source, in this epoch. `snapshot`: a pg_snapshot as text.

    `lsn`: the end of WAL, read with the snapshot; all transactions that the snapshot contains committed before that.
    `columns`: the columns that were published then; None if the table was dropped by then.
    """

    source_epoch: int
    snapshot: str
    lsn: int
    columns: CopiedColumns | None = None

    @property
    def place(self) -> HistoryPlace:
        """The place from which on the copy contains no event."""
        return HistoryPlace(self.source_epoch, self.lsn, 0)

    @property
    def contains(self) -> sql.Composable:
        """SQL that is true if the copy contains the event `e`."""
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
    """Return SQL that is true if a copy with these values contains the event `e`. `next_xid`: of the snapshot."""
    return sql.SQL(statement("followers.applying", "copy_contains")).format(
        is_copied=is_copied, source_epoch=source_epoch, lsn=lsn, snapshot=snapshot, next_xid=next_xid
    )
