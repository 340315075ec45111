"""The pipeline as one that drains a copy of the slot, into rows that are committed, indexed and in order."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from psycopg import Connection, errors

from tests.benchmarks.backlog import SOURCE_DATABASE, Backlog
from tests.benchmarks.errors import BenchmarkFailed
from tests.benchmarks.server import DATABASE, PipelineServer, serve
from tests.benchmarks.usage import WALSENDER, Usage
from tests.fixtures.postgres import Cluster

LIMIT = 1800.0
"""Seconds after which a drain counts as stuck."""
POLL = 0.025
OF_A_BACKLOG = {"PIPELINE_SNAPSHOT": "never"}
"""Settings of a server that is measured by what it reads of the WAL: the table's rows are in it already."""
_DIGEST = """
    select coalesce(sum(hashtextextended(numbered::text, 0)), 0)::text
    from (select row_number() over (order by seq) as number, source_epoch, commit_lsn, commit_idx, xid,
            source_table_oid, record_pk, record, changes, exact, action, unchanged_columns, committed_at
          from sequin_events) as numbered
"""


@dataclass(frozen=True)
class Drain:
    """One backlog drained once.

    `from_active`: the clock from the moment the slot is read, whatever `seconds` is. `warm`: changes a second over the
    second half, for a contender that has to warm up. `slots`: how many were read at once. `digest`: the same for two
    logs that say the same in the same order. `wal`: bytes that the server of the pipeline database wrote.
    `adopted`: the share of changes that became partitions.
    """

    seconds: float
    from_active: float | None = None
    warm: float | None = None
    megabytes: dict[str, float] = field(default_factory=dict)
    cpu: dict[str, float] = field(default_factory=dict)
    slots: int = 1
    digest: str = ""
    wal: float = 0.0
    adopted: float = 0.0


class Pipeline:
    """Ours. Clock: from the slot being read until every event is committed, indexed and visible."""

    name = "pipeline, to indexed sequin_events"

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        databases: Cluster | None = None,
        *,
        digested: bool = False,
        beside: Callable[[PipelineServer], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """`beside`: what holds from before the slot is read until all is visible."""
        self._settings = OF_A_BACKLOG | dict(settings or {})
        self._databases = databases
        self._digested = digested
        self._beside = beside

    def drain(self, cluster: Cluster, backlog: Backlog, slot: str) -> Drain:
        with (
            serve(cluster, slot, settings=self._settings, databases=self._databases) as server,
            cluster.connect(SOURCE_DATABASE) as source,
            server.databases.connect(DATABASE) as database,
        ):
            with self._beside(server):
                server.wait_active(source)
                started, wal = time.monotonic(), _position(database)
                with Usage(server) as usage:
                    wait_for_events(server, database, backlog.changes)
                    seconds = time.monotonic() - started
                    cpu = usage.cpu()
                wal = _position(database) - wal
            _verify(database, backlog)
            server.require_steady()
            digest = _digest(database) if self._digested else ""
            adopted = _adopted(database) / backlog.changes
        return Drain(seconds, seconds, None, usage.megabytes(), cpu, usage.most(WALSENDER), digest, wal, adopted)


def wait_for_events(server: PipelineServer, database: Connection, changes: int) -> None:
    """Until this many events are visible. Raises BenchmarkFailed when the server ends, or after LIMIT seconds."""
    deadline = time.monotonic() + LIMIT
    seen = 0
    while time.monotonic() < deadline:
        seen = visible_events(database)
        if seen >= changes:
            return
        server.require_alive()
        time.sleep(POLL)
    raise BenchmarkFailed(f"{seen} of {changes} events after {LIMIT:.0f} s: {server.log_tail()}")


def visible_events(database: Connection) -> int:
    """How many events have been moved to the log so far."""
    try:
        row = database.execute("select coalesce(sum(events), 0) from pipeline.shuffle_progress").fetchone()
    except errors.UndefinedTable:  # still migrating
        return 0
    return int(row[0]) if row else 0


def _verify(database: Connection, backlog: Backlog) -> None:
    """Every change is there once, and seq order is commit order."""
    row = database.execute("""
        select count(*), count(*) filter (where here <= before)
        from (select seq, (commit_lsn, commit_idx) as here, lag((commit_lsn, commit_idx)) over (order by seq) as before
              from sequin_events) as events
    """).fetchone()
    if row != (backlog.changes, 0):
        raise BenchmarkFailed(f"(rows, rows out of order) are {row}; {backlog.changes} were committed")


def _position(database: Connection) -> float:
    row = database.execute("select pg_current_wal_insert_lsn() - '0/0'").fetchone()
    assert row is not None
    return float(row[0])


def _adopted(database: Connection) -> int:
    row = database.execute("select coalesce(sum(changes), 0)::int from pipeline.ways where way = 'adopt'").fetchone()
    assert row is not None
    return int(row[0])


def _digest(database: Connection) -> str:
    row = database.execute(_DIGEST).fetchone()
    assert row is not None
    return str(row[0])
