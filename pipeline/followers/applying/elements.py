"""Elements sent to the follower, as many in one statement as fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import psycopg

from pipeline.postgres.connections import Connection

BYTES = 4 * 2**20
"""The most characters in one statement, but for a row that is larger."""
REFUSALS = (psycopg.errors.UniqueViolation, psycopg.errors.ExclusionViolation)
"""What a follower says of a row that it cannot have beside another."""


def arrays(elements: Iterable[str]) -> Iterator[str]:
    """JSON arrays of them."""
    gathered: list[str] = []
    size = 0
    for element in elements:
        if gathered and size + len(element) > BYTES:
            yield f"[{','.join(gathered)}]"
            gathered, size = [], 0
        gathered.append(element)
        size += len(element)
    if gathered:
        yield f"[{','.join(gathered)}]"


def send(follower: Connection, query: str, elements: Iterable[str]) -> int | None:
    """Execute a statement of `TableStatements`; returns the first seq that is missing, where it returns any."""
    missing: list[int] = []
    for array in arrays(elements):
        # Names may have a percent sign in them: only the raw cursor leaves it alone.
        cursor = psycopg.RawCursor(follower).execute(query, (array,))
        if cursor.description is not None:
            row = cursor.fetchone()
            missing += [row[0]] if row is not None and row[0] is not None else []
    return min(missing, default=None)
