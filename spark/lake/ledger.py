"""The ledger in the pipeline database: it lists the ranges of seq in a lake, and locks the lake for one exporter.

Each step is one statement, committed synchronously before it returns. Queries use an index, however many runs there
were.
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
"""The application name of a compaction's session."""
COMPACTION_SECONDS = 120.0
"""Seconds for which an export waits for a compaction that has the lake's lock."""
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
    """An export whose process ended before the export was committed. `state`: writing or publishing."""

    id: int
    state: str


def holder() -> str:
    """Return the name of this process in the ledger, for a user to read."""
    return f"{platform.node()} (pid {os.getpid()})"


class LakeLedger:
    """The ledger on one session, which holds the lake's lock until the session ends."""

    def __init__(self, connection: dbapi.Connection, dsn: str = "") -> None:
        """Use a connection. `dsn`: the DSN of the same database, without a password."""
        self._connection = connection
        self.dsn = dsn
        self.execute("set synchronous_commit = on")

    def lakes(self) -> dict[uuid.UUID, dict[str, Any]]:
        """Return every lake of this pipeline database: `directory` and `events_table` by id."""
        found = self.rows("select id::text, directory, events_table from pipeline.lakes")
        return {uuid.UUID(row["id"]): row for row in found}

    def pipeline(self) -> str | None:
        """Return the id of the pipeline database, which stays the same in a restored copy; None: it has none yet."""
        found = self.rows("select id::text from pipeline.identity")
        return str(found[0]["id"]) if found else None

    def waits_for_jump(self) -> bool:
        """Return True if the pipeline database was restored or promoted, and its log has not jumped since then."""
        return bool(self.rows(_RESTORED)[0]["restored"])

    def newest_jump(self, events_table: str) -> int:
        """Return the first seq after the last jump of an events table; 0 if it has never jumped."""
        query = "select coalesce(max(after), 0) as after from pipeline.seq_jumps where events_table = $1"
        return int(self.rows(query, (events_table,))[0]["after"])

    def add_lake(self, directory: str, events_table: str, known_as: uuid.UUID | None = None) -> uuid.UUID:
        """Add a lake that is new to the ledger, and return its id.

        `known_as`: the lake's id in its manifest, if there is one.
        """
        made = known_as or uuid.uuid4()
        self.execute(
            "insert into pipeline.lakes (id, directory, events_table, links) values ($1::text::uuid, $2, $3, $4)",
            (str(made), directory, events_table, known_as is not None),
        )
        return made

    def store_directory(self, lake: uuid.UUID, directory: str) -> None:
        """Store the present path of the lake's folder, which was moved."""
        self.execute("update pipeline.lakes set directory = $2 where id = $1::text::uuid", (str(lake), directory))

    def store_exchange_refusal(self, lake: uuid.UUID, refusal: str | None) -> None:
        """Store the reason why the file system of the lake cannot exchange two folders; None: it can."""
        self.execute(
            "update pipeline.lakes set cannot_exchange = nullif($2, '')"
            " where id = $1::text::uuid and coalesce(cannot_exchange, '') <> $2",
            (str(lake), refusal or ""),
        )

    def lock(self, lake: uuid.UUID) -> None:
        """Become the lake's only exporter until this session ends. Waits for a compaction that has the lock.

        Raises ExportRunningError, which names the other exporter.
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
        """Let other sessions export to the lake."""
        self.rows("select pg_advisory_unlock(hashtextextended('pipeline lake ' || $1, 0)) as unlocked", (str(lake),))

    def exported_upto(self, lake: uuid.UUID) -> int:
        """Return the seq up to which the lake holds every event; 0 if the lake is empty."""
        found = self.rows(
            "select coalesce(max(upto_seq), 0) as seq from pipeline.exports"
            " where lake_id = $1::text::uuid and state = 'committed'",
            (str(lake),),
        )
        return int(found[0]["seq"])

    def folded_upto(self, lake: uuid.UUID) -> int:
        """Return the seq up to which all current states that do not wait hold every change; 0 if it is unknown."""
        found = self.rows("select folded_upto from pipeline.lakes where id = $1::text::uuid", (str(lake),))
        return int(found[0]["folded_upto"] or 0)

    def store_folded_upto(self, lake: uuid.UUID, upto: int) -> None:
        """Store that the current states hold every change up to that seq, or wait."""
        self.execute("update pipeline.lakes set folded_upto = $2 where id = $1::text::uuid", (str(lake), upto))

    def is_from_older_version(self, lake: uuid.UUID) -> bool:
        """Return True if the lake has exports of an earlier server version that are not converted yet."""
        query = "select 1 from pipeline.exports where lake_id = $1::text::uuid and files is not null limit 1"
        return bool(self.rows(query, (str(lake),)))

    def unfinished(self, lake: uuid.UUID) -> list[UnfinishedExport]:
        """Return exports that are neither committed nor marked failed, oldest first."""
        found = self.rows(
            "select id, state from pipeline.exports"
            " where lake_id = $1::text::uuid and state in ('writing', 'publishing') order by id",
            (str(lake),),
        )
        return [UnfinishedExport(**row) for row in found]

    def begin(self, lake: uuid.UUID, after: int, upto: int, run: int | None) -> int:
        """Begin an export of a range, and return its id."""
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
        """Mark the export failed; its range may be exported again."""
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
        """Execute the statements of the block in one transaction: all of them, or none."""
        self.execute("begin")
        try:
            yield
        except BaseException:
            self.execute("rollback")
            raise
        self.execute("commit")

    def rows(self, query: str, parameters: tuple[Any, ...] = ()) -> list[dict[str, Any]]:
        """Return the rows of a query."""
        return catalog.rows(self._connection, query, parameters)

    def execute(self, statement: str, parameters: tuple[Any, ...] = ()) -> None:
        """Execute a statement that returns no rows."""
        catalog.execute(self._connection, statement, parameters)


def bigints(numbers: Iterable[int]) -> str:
    """Return numbers as the text of a bigint[] parameter: the driver cannot send arrays."""
    return "{" + ",".join(map(str, sorted(numbers))) + "}"


@contextmanager
def open_ledger(dsn: str) -> Iterator[LakeLedger]:
    """Open a ledger on a new session. Raises ExportError if the database does not answer or is not migrated."""
    try:
        with catalog.connect(dsn) as connection:
            yield LakeLedger(connection, without_password(dsn))
    except dbapi.Error as error:
        raise ExportError(f"the pipeline database refused: {' '.join(str(error).split())}") from error
