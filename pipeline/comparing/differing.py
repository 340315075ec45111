"""Find the keys whose row may differ between the source and the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import psycopg

from pipeline.capture.source.sources import ReplicationSource
from pipeline.comparing import compared_table, partition_bounds
from pipeline.comparing.compared_table import ComparableTable
from pipeline.comparing.comparison import ContentComparison
from pipeline.comparing.partition_bounds import Line
from pipeline.postgres import reading_session
from pipeline.postgres.connections import Connection
from pipeline.postgres.session_settings import SNAPSHOT

KEYS = 1_000
"""How many keys a batch has."""


def keys(
    source: Connection,
    pipeline: Connection,
    stored: ReplicationSource,
    table_oid: int,
    stopping: Callable[[], bool],
    bounds: Sequence[Line | None] | None = None,
) -> Iterator[list[list[str]]]:
    """Yield batches of keys, texts in the order of the version's key; a key may appear more than once.

    A row of such a key is missing on one side, has other values, or is not complete in the log. `bounds`: only keys
    that these partitions may have are compared, if bounds and keys allow that; None: all keys. Ends early once
    `stopping` returns true. Raises psycopg.Error, NotComparableError if the table has no key, was dropped or was
    truncated during the comparison, and DatabaseUnavailableError if the log stands still.
    """
    with reading_session.transaction(source, SNAPSHOT):
        table = compared_table.read(source, pipeline, stored, table_oid)
    table = table if bounds is None else replace(table, within=partition_bounds.parts(bounds, table.key))
    try:
        yield from _keys(source, pipeline, stored, table, stopping)
    except psycopg.DataError:  # a key of the log cannot be compared with the bounds
        if table.within is None:
            raise
        yield from _keys(source, pipeline, stored, replace(table, within=None), stopping)


def _keys(
    source: Connection,
    pipeline: Connection,
    stored: ReplicationSource,
    table: ComparableTable,
    stopping: Callable[[], bool],
) -> Iterator[list[list[str]]]:
    for looked, _ in ContentComparison(source, pipeline, stored, table, stopping).run():
        found = [list(key) for key in looked.keys]
        for at in range(0, len(found), KEYS):
            yield found[at : at + KEYS]
