"""Keys whose row may differ between the source and the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pipeline.capture.content import compared
from pipeline.capture.content.comparison import Comparison
from pipeline.capture.source.sources import Source
from pipeline.postgres import reading_session
from pipeline.postgres.connections import Connection
from pipeline.postgres.session_settings import SNAPSHOT

KEYS = 1_000
"""In a batch."""


def keys(
    source: Connection, pipeline: Connection, stored: Source, table_oid: int, stopping: Callable[[], bool]
) -> Iterator[list[list[str]]]:
    """Batches of keys, texts in the order of the version's key; a key may come more than once.

    In the one and not in the other, other values, or a state that the log cannot tell. Ends early once `stopping` says
    so. Raises NotComparable where the table has no key, is gone or was truncated meanwhile, psycopg.Error, and
    Unavailable where the log stands still.
    """
    with reading_session.transaction(source, SNAPSHOT):
        table = compared.read(source, pipeline, stored, table_oid)
    for looked, _ in Comparison(source, pipeline, stored, table, stopping).run():
        found = [list(key) for key in looked.keys]
        for at in range(0, len(found), KEYS):
            yield found[at : at + KEYS]
