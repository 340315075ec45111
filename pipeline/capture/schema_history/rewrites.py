"""Records tables whose values changed without an event, because logical decoding sends no rewrites, until they are
settled.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

import psycopg

from pipeline.capture.schema_history import introspection
from pipeline.capture.schema_history.continuity import ColumnRewrite, next_version
from pipeline.capture.schema_history.versions import HistoryVersion, KnownVersion
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.wal import lsn

_LOCK_TIMEOUT = "200ms"
_WHY = {
    "type": "another type",
    "default": "added with values for existing rows",
    "values": "rewritten, or that cannot be excluded",
    "attributes": "a composite type has got or lost attributes",
}


@dataclass(frozen=True)
class RewrittenTable:
    """A table whose rows may hold values that the log does not have, unless the rows were written since then.

    `table`: the name that it has now. `ids`: of its rewrites. `from_lsn`: commit_lsn of the first change after the
    rewrite; None until there is one.
    """

    table: str
    table_oid: int
    ids: list[int]
    columns: list[str]
    kinds: list[str]
    from_lsn: lsn.Shown | None
    found_at: datetime

    JSON: ClassVar = ("table", "columns", "kinds", "from_lsn", "found_at", "remedy")

    @property
    def why(self) -> str:
        """The columns, and what happened to them, as text."""
        return f"{', '.join(self.columns)}: {'; '.join(_WHY[kind] for kind in self.kinds)}"

    @property
    def remedy(self) -> str:
        """The commands that fix the difference."""
        return (
            f"run `pipeline backfill start {self.table} --differences`; or write each row once, then run"
            f" `pipeline sources rewrites --settle {self.table}`"
        )


def read_unsettled(connection: Connection, source_id: uuid.UUID | None = None) -> list[RewrittenTable]:
    """Return the rewritten tables that no user has settled, by name; of all sources if none is given."""
    query = statement("capture.schema_history", "unsettled_rewrites")
    return queries.rows(connection, RewrittenTable, query, {"source": source_id, "emptied": False})


def settle(
    connection: Connection,
    rewritten: RewrittenTable,
    found_before: datetime | None = None,
    before: tuple[int, int | None] = (0, None),
) -> None:
    """Settle the rewrites of a table, whose rows have been written again or do not matter.

    `found_before`: only rewrites that were known by then, and those `before` an LSN of an epoch, whenever they are
    found.
    """
    values = {"ids": rewritten.ids, "found_before": found_before, "epoch": before[0], "lsn": before[1]}
    connection.execute(statement("capture.schema_history", "settle_rewrites"), values)


def find_rewrites(source: Connection, known: KnownVersion, slot: str) -> list[ColumnRewrite]:
    """Return what DDL has rewritten since this version, wherever the stream is; nothing if the table was dropped."""
    if known.fingerprint is None or (now := introspection.describe_now(source, known, slot)) is None:
        return []
    settled = known.fingerprint.settle()  # the next description decides about doubtful parts
    _, found = next_version(known.version, settled, now.version, now.fingerprint, (0, 0))
    return found


def _is_empty(source: Connection, relation_oid: int) -> bool:
    """True if the table certainly has no rows; a locked one may have some."""
    try:
        with source.transaction(), queries.lock_timeout(source, _LOCK_TIMEOUT):
            row = source.execute("select pg_catalog.pg_relation_size(%s::oid) = 0", (relation_oid,)).fetchone()
    except psycopg.errors.LockNotAvailable:
        return False
    return row is not None and row[0] is not False


def record(
    source: Connection,
    connection: Connection,
    source_id: uuid.UUID,
    epoch: int,
    version: HistoryVersion,
    found: Sequence[ColumnRewrite],
    since: tuple[int, int] | None,
) -> None:
    """Store the rewrites of a table; `since`: the first change after them, None as long as there is none.

    Rewrites of a table without rows are settled: they concern only followers that still have earlier rows.
    """
    place = since or (None, None)
    is_empty = bool(found) and _is_empty(source, version.relation_oid)
    for rewrite in found:
        values = {
            "source": source_id,
            "epoch": epoch,
            "relation_oid": version.relation_oid,
            "table_schema": version.table_schema,
            "table_name": version.table_name,
            "columns": list(rewrite.columns),
            "kind": rewrite.kind,
            "version": rewrite.version,
            "from_lsn": place[0],
            "from_idx": place[1],
            "is_settled": is_empty or rewrite.kind == "renamed",
        }
        connection.execute(statement("capture.schema_history", "record_rewrite"), values)
