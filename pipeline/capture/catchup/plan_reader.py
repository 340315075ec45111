"""The plan as the pipeline database has it: the parts of the backlog that is being read, and how far each is."""

from __future__ import annotations

import uuid

from pipeline.capture.catchup.plan import Part, chain
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement


def read(connection: Connection, source_id: uuid.UUID) -> list[Part]:
    """Every part in the order of the WAL, the anchor's first; none while no catch-up is going on.

    Of the anchor's part only what is left counts: its `from_lsn` moves along.
    """
    return chain(queries.rows(connection, Part, statement("capture.catchup", "parts"), {"source": source_id}))
