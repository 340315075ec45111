"""What is staged and not moved yet, and the watermark: read in one statement."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from pipeline.log.staging.segments import Segment
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement


@dataclass(frozen=True)
class Staged:
    """Up to `watermark` all is moved, up to `complete` all is staged whole. `generation` changes with each worker.

    `next_range`: the next place at which rows that were read from a table come; `next_adopted`: the next transaction
    of a table that is to become a partition.
    """

    epoch: int
    watermark: int
    complete: int
    generation: str
    next_range: int | None = None
    next_adopted: int | None = None

    @property
    def whole(self) -> int:
        """The last transaction that can be moved before the next range of a table, or table to be adopted, is."""
        places = [place - 1 for place in (self.next_range, self.next_adopted) if place is not None]
        return min([self.complete, *places])


def look(connection: Connection, source: uuid.UUID) -> tuple[Staged | None, list[Segment]]:
    """The state of staging and log, None before the first staged row; and the segments with rows to move, in order."""
    found = connection.execute(statement("log.staging.frontier", "look"), {"source": source}).fetchall()
    pending = [Segment(*row[6:]) for row in found if row[6] is not None]
    return (Staged(*found[0][:6]) if found else None), pending
