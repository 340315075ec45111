"""How an export of a range is divided: pieces equal in rows, as many as there are cores for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil

from adbc_driver_postgresql import dbapi

from lake.changes.plan import Part
from lake.changes.writer import Piece
from lake.storage.new_file import Target
from pyspark_sequin_events import catalog

FEW_ROWS = 50_000
"""Fewer are not worth a second task, nor a second file."""


def pieces(
    connection: dbapi.Connection, parts: Sequence[Part], target: Target, *, rows_per_file: int, tasks: int
) -> list[Piece]:
    """What each task reads, that with most rows first, so that none begins last that takes longest.

    `tasks`: how many run at a time. A piece has at most `rows_per_file` rows, unless one seq has more.
    """
    fair = ceil(sum(part.rows for part in parts) / max(1, tasks))
    most = min(rows_per_file, max(fair, FEW_ROWS))
    found = [each for part in parts for each in _pieces(connection, part, target, most)]
    return [piece for _, piece in sorted(found, key=lambda each: -each[0])]


def _pieces(connection: dbapi.Connection, part: Part, target: Target, most: int) -> Iterator[tuple[int, Piece]]:
    """Each with about how many rows it has."""
    number = ceil(part.rows / most)
    rows = ceil(part.rows / max(1, number))
    bounds = part.read.after, part.read.upto
    cuts = catalog.cuts(connection, part.read.query, bounds, rows) if number > 1 else []
    after = bounds[0]
    for upto in [*cuts, bounds[1]]:
        if upto > after:
            read = replace(part.read, after=after, upto=upto)
            yield (
                rows,
                Piece(read, part.dataset, part.version, part.source_id, part.source_epoch, part.table_oid, target),
            )
            after = upto
