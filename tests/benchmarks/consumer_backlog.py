"""A running server that has drained a backlog, for consumers to begin at its beginning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from psycopg import Connection

from tests.benchmarks import backlog
from tests.benchmarks.contenders import wait_for_events
from tests.benchmarks.server import DATABASE, PipelineServer, serve
from tests.fixtures.postgres import Cluster


@contextmanager
def drained(
    cluster: Cluster, events: int, settings: Mapping[str, str] | None = None
) -> Iterator[tuple[PipelineServer, Connection]]:
    """This many single-row transactions in the log, and a connection to the pipeline database."""
    with (
        backlog.small(cluster, events / backlog.SMALL) as made,
        serve(cluster, backlog.SLOT, settings=settings) as server,
        cluster.connect(DATABASE) as database,
    ):
        wait_for_events(server, database, made.changes)
        database.execute("vacuum analyze sequin_events")
        database.execute("checkpoint")
        yield server, database
