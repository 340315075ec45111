"""Tables as they were when they were published: for a worker that comes late to their first change.

Of a partition that was detached or dropped since, the catalog no longer says which table's rows it held; nor what was
the primary key beside a full replica identity.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import asdict

from psycopg.types.json import Jsonb

from pipeline.capture.schema_history.versions import TableVersion, form_of
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement


def unknown(connection: Connection, source_id: uuid.UUID, epoch: int, oids: Collection[int]) -> list[int]:
    """Those of these relations of which neither a change has come nor anything is recorded here."""
    values = {"source": source_id, "epoch": epoch, "oids": list(oids)}
    return [
        oid for (oid,) in connection.execute(statement("capture.schema_history", "unknown_forms"), values).fetchall()
    ]


def record(connection: Connection, source_id: uuid.UUID, epoch: int, form: TableVersion) -> None:
    """Remember a table that is about to be published; keeps what is there."""
    values = {"source": source_id, "epoch": epoch, "oid": form.relation_oid, "form": Jsonb(asdict(form))}
    connection.execute(statement("capture.schema_history", "record_published_form"), values)


def find(connection: Connection, source_id: uuid.UUID, epoch: int, oid: int) -> TableVersion | None:
    """What was recorded of it."""
    values = {"source": source_id, "epoch": epoch, "oid": oid}
    row = connection.execute(statement("capture.schema_history", "find_published_form"), values).fetchone()
    return form_of(row[0], (0, 0)) if row else None
