"""Keys whose row may differ between the source and the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import psycopg

from pipeline.capture.source.sources import ReplicationSource
from pipeline.comparing import compared, partition_bounds
from pipeline.comparing.compared import ComparableTable
from pipeline.comparing.comparison import ContentComparison
from pipeline.comparing.partition_bounds import Line
from pipeline.postgres import reading_session
from pipeline.postgres.connections import Connection
from pipeline.postgres.session_settings import SNAPSHOT

KEYS = 1_000
"""In a batch."""


def keys(
    source: Connection,
    pipeline: Connection,
    stored: ReplicationSource,
    table_oid: int,
    stopping: Callable[[], bool],
    bounds: Sequence[Line | None] | None = None,
) -> Iterator[list[list[str]]]:
    """Batches of keys, texts in the order of the version's key; a key may come more than once.

    `bounds`: of partitions; only keys that these may have are compared, where bounds and keys say which; None: all.

    In the one and not in the other, other values, or a state that the log cannot tell. Ends early once `stopping` says
    so. Raises NotComparableError where the table has no key, is gone or was truncated meanwhile, psycopg.Error, and
    DatabaseUnavailableError where the log stands still.
    """
    with reading_session.transaction(source, SNAPSHOT):
        table = compared.read(source, pipeline, stored, table_oid)
    table = table if bounds is None else replace(table, within=partition_bounds.parts(bounds, table.key))
    try:
        yield from _keys(source, pipeline, stored, table, stopping)
    except psycopg.DataError:  # keys of the log have no order among the bounds
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
