"""The ledger in the pipeline database: which ranges of seq are in a lake, and who may write to it.

Each step is one statement, committed synchronously before it returns. What is asked is found by index, however many
runs there were.
"""

from __future__ import annotations

import os
import platform
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from adbc_driver_postgresql import dbapi

from lake.errors import ExporterFencedError, ExportError, ExportRunningError
from pyspark_sequin_events import catalog
from pyspark_sequin_events.dsn import without_password

COMPACTION = "pipeline compaction"
"""What the session of a compaction is called."""
COMPACTION_SECONDS = 120.0
"""For so long one that has the lake is waited for."""
_POLL = 0.2
_LOCK = "select pg_try_advisory_lock(hashtextextended('pipeline lake ' || $1, 0)) as locked"
_RESTORED = """
    select exists (
        select from pipeline.identity i cross join pipeline.log_place() h
        where i.table_oid is not null and (i.system_identifier <> h.system_identifier or i.timeline <> h.timeline
            or i.database_oid <> h.database_oid or i.table_oid <> h.table_oid or i.written_by <> i.xmin)
    ) as restored
"""
_COMPACTING = """
    select 1 from pipeline.advisory_locks l join pg_stat_activity a on a.pid = l.pid
    where l.key = hashtextextended('pipeline lake ' || $1, 0) and a.application_name = $2
"""


@dataclass(frozen=True)
class UnfinishedExport:
    """An export whose process ended before it was committed. `state`: writing or publishing."""

    id: int
    state: str


def holder() -> str:
    """The name of this process in the ledger, for people to read."""
    return f"{platform.node()} (pid {os.getpid()})"


class LakeLedger:
    """The ledger on one session, which holds the lake's lock until it ends."""

    def __init__(self, connection: dbapi.Connection, dsn: str = "") -> None:
        """`dsn`: of the same database, without a password."""
        self._connection = connection
        self.dsn = dsn
        self.execute("set synchronous_commit = on")

    def lakes(self) -> dict[uuid.UUID, dict[str, Any]]:
        """Every lake of this pipeline database: `directory` and `events_table` by id."""
        found = self.rows("select id::text, directory, events_table from pipeline.lakes")
        return {uuid.UUID(row["id"]): row for row in found}

    def pipeline(self) -> str | None:
        """The id of the pipeline database, which goes with it wherever it is restored; None: it has none yet."""
        found = self.rows("select id::text from pipeline.identity")
        return str(found[0]["id"]) if found else None

    def waits_for_jump(self) -> bool:
        """True if the pipeline database was restored or promoted, and its log has not jumped since then."""
        return bool(self.rows(_RESTORED)[0]["restored"])

    def newest_jump(self, events_table: str) -> int:
        """The first seq behind the last jump of an events table; 0 if it has never jumped."""
        query = "select coalesce(max(after), 0) as after from pipeline.seq_jumps where events_table = $1"
        return int(self.rows(query, (events_table,))[0]["after"])

    def add_lake(self, directory: str, events_table: str, known_as: uuid.UUID | None = None) -> uuid.UUID:
        """Add a lake, of which the ledger lists nothing yet; returns its id.

        `known_as`: the id that it has already.
        """
        made = known_as or uuid.uuid4()
        self.execute(
            "insert into pipeline.lakes (id, directory, events_table, links) values ($1::text::uuid, $2, $3, $4)",
            (str(made), directory, events_table, known_as is not None),
        )
        return made

    def store_directory(self, lake: uuid.UUID, directory: str) -> None:
        """Store that the lake's folder has another path now."""
        self.execute("update pipeline.lakes set directory = $2 where id = $1::text::uuid", (str(lake), directory))

    def store_exchange_refusal(self, lake: uuid.UUID, refusal: str | None) -> None:
        """Store why the file system of the lake cannot exchange two folders; None: it can."""
        self.execute(
            "update pipeline.lakes set cannot_exchange = nullif($2, '')"
            " where id = $1::text::uuid and coalesce(cannot_exchange, '') <> $2",
            (str(lake), refusal or ""),
        )

    def lock(self, lake: uuid.UUID) -> None:
        """Become the lake's only exporter until this session ends, after a compaction that is just being published.

        Raises ExportRunningError, which names the other one.
        """
        deadline = time.monotonic() + COMPACTION_SECONDS
        while not self.rows(_LOCK, (str(lake),))[0]["locked"]:
            if time.monotonic() < deadline and self.rows(_COMPACTING, (str(lake), COMPACTION)):
                time.sleep(_POLL)
                continue
            others = self.rows(
                "select holder, started_at::text from pipeline.exports where lake_id = $1::text::uuid"
                " and state in ('writing', 'publishing') order by id desc limit 1",
                (str(lake),),
            )
            who = f"{others[0]['holder']} since {others[0]['started_at']}" if others else "unknown"
            raise ExportRunningError(f"an export is already running: {who}; wait for it, or end it")

    def unlock(self, lake: uuid.UUID) -> None:
        """Let others export to it."""
        self.rows("select pg_advisory_unlock(hashtextextended('pipeline lake ' || $1, 0)) as unlocked", (str(lake),))

    def exported_upto(self, lake: uuid.UUID) -> int:
        """The lake holds every event up to this seq; 0 when it holds nothing."""
        found = self.rows(
            "select coalesce(max(upto_seq), 0) as seq from pipeline.exports"
            " where lake_id = $1::text::uuid and state = 'committed'",
            (str(lake),),
        )
        return int(found[0]["seq"])

    def folded_upto(self, lake: uuid.UUID) -> int:
        """The current states hold every change up to this seq, but for those that wait; 0 when that is not known."""
        found = self.rows("select folded_upto from pipeline.lakes where id = $1::text::uuid", (str(lake),))
        return int(found[0]["folded_upto"] or 0)

    def store_folded_upto(self, lake: uuid.UUID, upto: int) -> None:
        """The current states hold every change up to that seq, or wait."""
        self.execute("update pipeline.lakes set folded_upto = $2 where id = $1::text::uuid", (str(lake), upto))

    def is_from_older_version(self, lake: uuid.UUID) -> bool:
        """Whether a version of the server before this has exported to the lake, and nothing has been made of it yet."""
        query = "select 1 from pipeline.exports where lake_id = $1::text::uuid and files is not null limit 1"
        return bool(self.rows(query, (str(lake),)))

    def unfinished(self, lake: uuid.UUID) -> list[UnfinishedExport]:
        """Exports that are neither committed nor marked failed, oldest first."""
        found = self.rows(
            "select id, state from pipeline.exports"
            " where lake_id = $1::text::uuid and state in ('writing', 'publishing') order by id",
            (str(lake),),
        )
        return [UnfinishedExport(**row) for row in found]

    def begin(self, lake: uuid.UUID, after: int, upto: int, run: int | None) -> int:
        """Begin an export of that range; returns its id."""
        found = self.rows(
            "insert into pipeline.exports (lake_id, run_id, after_seq, upto_seq, holder)"
            " values ($1::text::uuid, nullif($2::bigint, 0), $3, $4, $5) returning id",
            (str(lake), run or 0, after, upto, holder()),
        )
        return int(found[0]["id"])

    def commit(self, export: int) -> None:
        """Commit the export: all its files are in place. Raises ExporterFencedError."""
        self.step(
            "export",
            "update pipeline.exports set state = 'committed', committed_at = now()"
            " where id = $1 and state = 'publishing' returning id",
            (export,),
        )

    def fail(self, export: int, reason: str) -> None:
        """Give the export up; its range may be exported again."""
        self.execute(
            "with failed as (update pipeline.exports set state = 'failed', reason = $2, files = null"
            " where id = $1 and state <> 'committed' returning id)"
            " delete from pipeline.export_files f using failed where f.export_id = failed.id",
            (export, reason),
        )

    def step(self, what: str, statement: str, parameters: tuple[Any, ...]) -> None:
        """Move a row, whose id is the first parameter, to its next state.

        Raises ExporterFencedError if another exporter has taken over the row.
        """
        if not self.rows(statement, parameters):
            raise ExporterFencedError(
                f"{what} {parameters[0]} was taken over by another exporter; this one publishes nothing"
            )

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All that is executed meanwhile, or nothing of it."""
        self.execute("begin")
        try:
            yield
        except BaseException:
            self.execute("rollback")
            raise
        self.execute("commit")

    def rows(self, query: str, parameters: tuple[Any, ...] = ()) -> list[dict[str, Any]]:
        """The rows that a query returns."""
        return catalog.rows(self._connection, query, parameters)

    def execute(self, statement: str, parameters: tuple[Any, ...] = ()) -> None:
        """Execute a statement that returns no rows."""
        catalog.execute(self._connection, statement, parameters)


def bigints(numbers: Iterable[int]) -> str:
    """Numbers as a parameter of the type bigint[], which the driver knows no way to send."""
    return "{" + ",".join(map(str, sorted(numbers))) + "}"


@contextmanager
def open_ledger(dsn: str) -> Iterator[LakeLedger]:
    """A ledger on its own session. Raises ExportError if the database does not answer or is not migrated."""
    try:
        with catalog.connect(dsn) as connection:
            yield LakeLedger(connection, without_password(dsn))
    except dbapi.Error as error:
        raise ExportError(f"the pipeline database refused: {' '.join(str(error).split())}") from error
