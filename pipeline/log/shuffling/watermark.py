"""The watermark in a new epoch."""

from __future__ import annotations

import uuid

from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement


def restart(connection: Connection, source: uuid.UUID, epoch: int) -> None:
    """The next transactions are of this epoch, whose LSNs begin anew. The log must have all of the epoch before."""
    connection.execute(statement("log.shuffling", "restart_watermark"), {"source": source, "epoch": epoch})
