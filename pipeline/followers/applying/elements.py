"""Sends elements to the follower, as many in one statement as fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import psycopg

from pipeline.postgres.connections import Connection

BYTES = 4 * 2**20
"""The most characters in one statement, unless a single row is larger."""
REFUSALS = (psycopg.errors.UniqueViolation, psycopg.errors.ExclusionViolation)
"""The errors of a follower for a row that conflicts with another row."""


def arrays(elements: Iterable[str]) -> Iterator[str]:
    """Yield JSON arrays of these elements."""
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
    """Execute a statement of `TableStatements`; returns the first seq whose row is missing, or None."""
    missing: list[int] = []
    for array in arrays(elements):
        # Names may contain a percent sign, which only the raw cursor does not interpret.
        cursor = psycopg.RawCursor(follower).execute(query, (array,))
        if cursor.description is not None:
            row = cursor.fetchone()
            missing += [row[0]] if row is not None and row[0] is not None else []
    return min(missing, default=None)
