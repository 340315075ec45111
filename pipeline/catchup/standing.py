"""The plan as the pipeline database has it: the parts of the backlog that is being read, and how far each is."""

from __future__ import annotations

import uuid

from psycopg.rows import class_row

from pipeline.catchup.plan import Part, chain
from pipeline.db import Connection, sql


def read(connection: Connection, source_id: uuid.UUID) -> list[Part]:
    """Every part in the order of the WAL, the anchor's first; none while no catch-up is going on.

    Of the anchor's part only what is left counts: its `from_lsn` moves along. A database of an older version has none.
    """
    row = connection.execute("select to_regclass('pipeline.catchup_parts') is not null").fetchone()
    if not (row and row[0]):
        return []
    with connection.cursor(row_factory=class_row(Part)) as cursor:
        return chain(cursor.execute(sql("catchup", "parts"), {"source": source_id}).fetchall())
