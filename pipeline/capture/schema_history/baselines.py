"""Stores tables as they were when they were published, for a worker that reads their first change much later.

If a partition was detached or dropped since then, the catalog no longer says which table's rows it held, nor which
primary key a table with full replica identity had.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import asdict

from psycopg.types.json import Jsonb

from pipeline.capture.schema_history.versions import HistoryVersion, from_stored
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_FIND_BASELINE = """\
select form from pipeline.published_forms
where source_id = %(source)s and epoch = %(epoch)s and relation_oid = %(oid)s
"""
"""Find a table as it was when it was published."""
_RECORD_BASELINE = """\
insert into pipeline.published_forms (source_id, epoch, relation_oid, form)
values (%(source)s, %(epoch)s, %(oid)s, %(form)s)
on conflict do nothing
"""
"""Record a table as it is when it is published."""


def find_unknown(connection: Connection, source_id: uuid.UUID, epoch: int, oids: Collection[int]) -> list[int]:
    """Return those of these relations that have neither a known version nor a baseline."""
    values = {"source": source_id, "epoch": epoch, "oids": list(oids)}
    return [
        oid for (oid,) in connection.execute(statement("capture.schema_history", "unknown_tables"), values).fetchall()
    ]


def record(connection: Connection, source_id: uuid.UUID, epoch: int, version: HistoryVersion) -> None:
    """Record a table that is about to be published; an existing record is kept."""
    values = {"source": source_id, "epoch": epoch, "oid": version.relation_oid, "form": Jsonb(asdict(version))}
    connection.execute(_RECORD_BASELINE, values)


def find(connection: Connection, source_id: uuid.UUID, epoch: int, oid: int) -> HistoryVersion | None:
    """Return the recorded baseline of a relation; None if there is none."""
    values = {"source": source_id, "epoch": epoch, "oid": oid}
    row = connection.execute(_FIND_BASELINE, values).fetchone()
    return from_stored(row[0], (0, 0)) if row else None
