"""Tables whose values changed without an event: what logical decoding does not carry, until somebody settles it."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

import psycopg

from pipeline.capture.schema_history.continuity import Rewrite
from pipeline.capture.schema_history.versions import TableVersion
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.wal import lsn

_PATIENCE = "200ms"
_WHY = {
    "type": "another type",
    "default": "came with values for rows that were there already",
    "values": "written anew, or that cannot be excluded",
}


@dataclass(frozen=True)
class Rewritten:
    """A table of which the log may not have what rows hold that were not written since.

    `from_lsn`: commit_lsn of the first change after it; None while none has come.
    """

    table: str
    columns: list[str]
    kinds: list[str]
    from_lsn: lsn.Shown | None
    found_at: datetime

    JSON: ClassVar = ("table", "columns", "kinds", "from_lsn", "found_at", "remedy")

    @property
    def why(self) -> str:
        """What happened to the columns, for people."""
        return f"{', '.join(self.columns)}: {'; '.join(_WHY[kind] for kind in self.kinds)}"

    @property
    def remedy(self) -> str:
        """What to do about it."""
        return f"write each row once, then run `pipeline sources rewrites --settle {self.table}`"


def unsettled(connection: Connection) -> list[Rewritten]:
    """Rewritten tables that nobody has settled, by name; none in a pipeline database of before."""
    return queries.rows(connection, Rewritten, statement("capture.schema_history", "unsettled_rewrites"))


def settle(connection: Connection, table: str) -> int:
    """Its rows have been written, or it does not matter; returns how many rewrites that were."""
    return connection.execute(statement("capture.schema_history", "settle_rewrites"), {"table": table}).rowcount


def is_empty(source: Connection, relation_oid: int) -> bool:
    """Whether the table has no rows, for certain: one that is locked may have some."""
    try:
        with source.transaction(), queries.lock_timeout(source, _PATIENCE):
            row = source.execute("select pg_catalog.pg_relation_size(%s::oid) = 0", (relation_oid,)).fetchone()
    except psycopg.errors.LockNotAvailable:
        return False
    return row is not None and row[0] is not False


def record(
    connection: Connection,
    source_id: uuid.UUID,
    epoch: int,
    form: TableVersion,
    found: Iterable[Rewrite],
    since: tuple[int, int] | None,
) -> None:
    """What was found of a table; `since`: the first change after it, None as long as none has come."""
    place = since or (None, None)
    for rewrite in found:
        values = {
            "source": source_id,
            "epoch": epoch,
            "relation_oid": form.relation_oid,
            "table_schema": form.table_schema,
            "table_name": form.table_name,
            "columns": list(rewrite.columns),
            "kind": rewrite.kind,
            "version": rewrite.version,
            "from_lsn": place[0],
            "from_idx": place[1],
        }
        connection.execute(statement("capture.schema_history", "record_rewrite"), values)
