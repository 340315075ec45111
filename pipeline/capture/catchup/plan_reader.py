"""Reads the plan from the pipeline database: the parts of the backlog, and how far each is staged."""

from __future__ import annotations

import uuid

from pipeline.capture.catchup.plan import BacklogPart, order_parts
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement


def read_plan(connection: Connection, source_id: uuid.UUID) -> list[BacklogPart]:
    """Return all parts in order of WAL, the anchor's first; an empty list if there is no catch-up.

    The anchor's part is only its remaining range: its `from_lsn` moves.
    """
    return order_parts(
        queries.rows(connection, BacklogPart, statement("capture.catchup", "parts"), {"source": source_id})
    )
