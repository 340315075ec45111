"""What is staged and not moved yet, and the watermark: read in one statement."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.staging.segments import Segment


@dataclass(frozen=True)
class Staged:
    """Up to `watermark` all is moved, up to `complete` all is staged whole. `generation` changes with each worker."""

    epoch: int
    watermark: int
    complete: int
    generation: str


def look(connection: Connection, source: uuid.UUID) -> tuple[Staged | None, list[Segment]]:
    """The state of staging and log, None before the first staged row; and the segments with rows to move, in order."""
    found = connection.execute(statement("shuffle", "look"), {"source": source}).fetchall()
    pending = [Segment(*row[4:]) for row in found if row[4] is not None]
    return (Staged(*found[0][:4]) if found else None), pending
