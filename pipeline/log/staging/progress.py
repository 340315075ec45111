"""Read and store how far the source is staged, which is where a worker continues, and restart in a new epoch."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import LiteralString

from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_COUNT_CHANGES = """\
select coalesce(sum(changes), 0)::bigint from pipeline.replication_progress where source_id = %(source)s
"""
"""Count the changes of a source that the stream has brought; rows that were read from tables do not count."""
_STORED_POSITION = """\
select position from pipeline.replication_progress where source_id = %(source)s and worker = %(worker)s
"""
"""Read how far a worker has staged; no row if it never began."""


@dataclass(frozen=True)
class StagedPosition:
    """How far a worker has staged: `commit_lsn` and `committed_at` (µs since 2000) of its last transaction with rows.

    They are 0 and None before the first such transaction.
    """

    epoch: int
    position: int
    commit_lsn: int
    committed_at: int | None


def with_progress(package: str, name: str) -> LiteralString:
    """Return a statement with the text that stores a batch's progress, which all paths into the log share."""
    return statement(package, name).format(set_progress=statement("log.staging", "set_progress"))


def staged(connection: Connection, source: uuid.UUID, worker: int = 0) -> StagedPosition | None:
    """Return the stored progress of a worker; None if this source was never replicated."""
    return queries.one(
        connection, StagedPosition, statement("log.staging", "last_staged"), {"source": source, "worker": worker}
    )


def stored_position(connection: Connection, source: uuid.UUID, worker: int = 0) -> int | None:
    """Return the stored position of a worker; None when this source was never replicated."""
    row = connection.execute(_STORED_POSITION, {"source": source, "worker": worker}).fetchone()
    return None if row is None else row[0]


def begin(connection: Connection, source: uuid.UUID, epoch: int, position: int, worker: int = 0) -> None:
    """Store the first position of a source; an existing one is kept."""
    connection.execute(
        statement("log.staging", "begin_progress"),
        {"source": source, "worker": worker, "epoch": epoch, "position": position},
    )


def log_reaches(connection: Connection, source: uuid.UUID, lsn: int) -> tuple[bool, tuple[int | None, int | None]]:
    """Return True if the log has everything before `lsn`, and the LSNs up to which it is staged and moved."""
    row = connection.execute(
        statement("log.staging.frontier", "log_reaches"), {"source": source, "lsn": lsn}
    ).fetchone()
    return (row[0], (row[1], row[2])) if row else (False, (None, None))


def restart(connection: Connection, source: uuid.UUID, epoch: int, position: int, worker: int = 0) -> None:
    """Continue in a new epoch, from `position`. All staged changes must have been moved to the log before."""
    values = {"source": source, "worker": worker, "epoch": epoch, "position": position}
    connection.execute(statement("log.staging", "restart_progress"), values)


def changes(connection: Connection, source: uuid.UUID) -> int:
    """Return how many changes the stream has brought; rows that were read from tables do not count."""
    return int(queries.value(connection, _COUNT_CHANGES, {"source": source}))
