"""Store samples of positions and counts, from which `status` computes rates."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import psycopg
from psycopg.rows import dict_row

from pipeline.config.settings import Config
from pipeline.errors import PipelineError
from pipeline.postgres import connections
from pipeline.postgres.queries import statement


def sample(config: Config) -> None:
    """Store positions and counts as they are now."""
    with connections.connect(config.database, "pipeline database", name="pipeline sample") as connection:
        connection.execute(statement("operate", "add_sample"), {"source": config.source_id, **_at_source(config)})


def _at_source(config: Config) -> dict[str, Any]:
    """The source's end of WAL and the slot's confirmed LSN; both None if the source does not answer."""
    found: dict[str, Any] | None = None
    with (
        suppress(PipelineError, psycopg.OperationalError),
        connections.connect(config.source, "source", name="pipeline sample") as source,
        source.cursor(row_factory=dict_row) as cursor,
    ):
        found = cursor.execute(statement("operate", "source_position"), {"slot": config.slot}).fetchone()
    return found or {"source_lsn": None, "confirmed_lsn": None}
