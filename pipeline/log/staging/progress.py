"""How far the source is staged: from where a worker continues, and the restart in a new epoch."""

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
"""How many changes of a source the stream has brought so far; of rows that were read from tables it counts none."""
_STORED_POSITION = """\
select position from pipeline.replication_progress where source_id = %(source)s and worker = %(worker)s
"""
"""How far a worker has staged; no row when it never began."""


@dataclass(frozen=True)
class StagedPosition:
    """`commit_lsn` and `committed_at` (µs since 2000) are of the last transaction with rows; 0 and None before it."""

    epoch: int
    position: int
    commit_lsn: int
    committed_at: int | None


def with_progress(package: str, name: str) -> LiteralString:
    """The statement of this name, which has the progress of a batch follow it: the same way for all who write one."""
    return statement(package, name).format(set_progress=statement("log.staging", "set_progress"))


def staged(connection: Connection, source: uuid.UUID, worker: int = 0) -> StagedPosition | None:
    """The stored progress; None when this source was never replicated."""
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
    """Whether the log has everything before `lsn`; and up to where it is staged and moved."""
    row = connection.execute(
        statement("log.staging.frontier", "log_reaches"), {"source": source, "lsn": lsn}
    ).fetchone()
    return (row[0], (row[1], row[2])) if row else (False, (None, None))


def restart(connection: Connection, source: uuid.UUID, epoch: int, position: int, worker: int = 0) -> None:
    """Continue in a new epoch, from `position`. All staged changes must have been moved to the log before."""
    values = {"source": source, "worker": worker, "epoch": epoch, "position": position}
    connection.execute(statement("log.staging", "restart_progress"), values)


def changes(connection: Connection, source: uuid.UUID) -> int:
    """How many changes the stream has brought; rows that were read from tables do not count."""
    return int(queries.value(connection, _COUNT_CHANGES, {"source": source}))
