"""The tables of exports as the server sees them: runs, ranges, how far the lake is. The Spark scripts write ranges."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import psycopg
from psycopg import sql

from pipeline.config.settings import Config
from pipeline.config.values import ICEBERG
from pipeline.errors import ExportFailedError
from pipeline.exports.window import ExportWindow
from pipeline.log.table import EventsTable
from pipeline.postgres import migrations, queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

RUN_LOCK = 1_817_104_723
"""First half of the advisory lock that a run's session holds; the second is the run's id."""

Trigger = Literal["schedule", "command"]
EndState = Literal["done", "failed", "stopped"]
_FINISH_RUN = """\
update pipeline.export_runs set state = %(state)s, reason = %(reason)s, finished_at = now() where id = %(run)s
"""
"""Record that a run has ended."""
_SET_LOG = "update pipeline.export_runs set log = %(log)s where id = %(run)s"
"""Record where a run's log is."""
_TAKE_TURN = "select pg_try_advisory_lock(hashtextextended('pipeline export to ' || %(directory)s, 0))"
"""Let one exporter at a time start its script, so that two exporters that waited for a third do not collide."""


@dataclass(frozen=True)
class ExportRun:
    """One run of the export. `state`: running, done, failed, stopped. `seconds`: how long it has run."""

    id: int
    trigger: str
    state: str
    holder: str
    log: str | None
    reason: str | None
    started_at: datetime
    finished_at: datetime | None
    seconds: float | None


@dataclass(frozen=True)
class ExportRange:
    """One range of seqs, without `after_seq`. `state`: writing, publishing, committed, failed. `files`: how many."""

    id: int
    run_id: int | None
    after_seq: int
    upto_seq: int
    state: str
    rows: int | None
    bytes: int | None
    files: int
    directory: str
    holder: str
    reason: str | None
    started_at: datetime
    committed_at: datetime | None
    seconds: float | None


@dataclass(frozen=True)
class ExportFile:
    """A file of a committed range; `path` is relative to the lake's folder."""

    path: str
    dataset: str
    schema: int
    rows: int
    bytes: int
    sha256: str
    first_seq: int
    last_seq: int


@dataclass(frozen=True)
class WaitingStates:
    """Current states that lack a few changes. `waiting`: their number.

    `waiting_since`: when the oldest missing change was exported. `waiting_seq`: all states are complete up to this seq.
    """

    waiting: int = 0
    waiting_since: datetime | None = None
    waiting_seq: int | None = None


@dataclass(frozen=True)
class HiddenState:
    """A table that has no current state in the lake of an events table, and why."""

    events_table: str
    table_name: str
    reason: str


@dataclass(frozen=True)
class UnexchangedFolder:
    """A folder of the lake in `directory` that the file system could not exchange, and why.

    `folder` None: it can exchange no folders at all.
    """

    directory: str
    folder: str | None
    reason: str


def window(connection: Connection, config: Config) -> ExportWindow:
    """Return the events that the lake of these settings lacks.

    Raises ExportFailedError if the events table does not exist, SchemaError if the database is not at this
    revision.
    """
    migrations.require_head(connection)
    table = EventsTable.parse(config.events_table)
    query = sql.SQL(statement("exports", "export_window")).format(events=table.identifier)
    parameters = {
        "directory": str(config.exports),
        "events_table": str(table),
        "iceberg": ICEBERG in config.export_formats,
        "latest_age": config.export_latest_age_seconds,
    }
    try:
        return queries.one(connection, ExportWindow, query, parameters) or ExportWindow()
    except psycopg.errors.UndefinedTable as error:
        raise ExportFailedError(
            f"the events table {table} does not exist; restore it, or correct PIPELINE_EVENTS_TABLE"
        ) from error


def has_pending_merges(connection: Connection, config: Config) -> bool:
    """Return True if a compaction of the lake may find small files."""
    return bool(queries.value(connection, statement("exports", "pending_merges"), {"directory": str(config.exports)}))


def take_turn(connection: Connection, config: Config) -> bool:
    """Make this session the only one that starts exports to this folder, until it ends; False if another session is."""
    return bool(queries.value(connection, _TAKE_TURN, {"directory": str(config.exports)}))


def running(connection: Connection) -> str | None:
    """Return the process of the newest run that has not ended; None if no run is active."""
    return next((run.holder for run in runs(connection, 1, "running") if run.state == "running"), None)


def begin_run(connection: Connection, trigger: Trigger) -> int:
    """Record a new run, which counts as running as long as this session exists; returns its id."""
    parameters = {"trigger": trigger, "holder": f"{platform.node()} (pid {os.getpid()})", "lock": RUN_LOCK}
    with connection.transaction():
        connection.execute(statement("exports", "end_lost_runs"), parameters)
        row = connection.execute(statement("exports", "begin_run"), parameters).fetchone()
    assert row is not None  # noqa: S101  insert … returning
    return int(row[0])


def set_log(connection: Connection, run: int, log: str) -> None:
    """Record where the run's log is."""
    connection.execute(_SET_LOG, {"run": run, "log": log})


def finish_run(connection: Connection, run: int, state: EndState, reason: str | None) -> None:
    """Record that the run has ended. `reason`: why it failed or was stopped; None if it succeeded."""
    connection.execute(_FINISH_RUN, {"run": run, "state": state, "reason": reason})


def runs(connection: Connection, limit: int, *states: str) -> list[ExportRun]:
    """Return the runs with one of these states, or all, the newest first."""
    chosen = list(states or ("running", "done", "failed", "stopped"))
    return queries.rows(
        connection, ExportRun, statement("exports", "list_runs"), {"limit": limit, "lock": RUN_LOCK, "states": chosen}
    )


def exports(connection: Connection, limit: int | None) -> list[ExportRange]:
    """Return the ranges, the newest first."""
    return queries.rows(connection, ExportRange, statement("exports", "list_exports"), {"id": None, "limit": limit})


def export(connection: Connection, number: int) -> tuple[ExportRange, list[ExportFile]]:
    """Return one range and its files. Raises ExportFailedError if no range has this id."""
    found = queries.one(connection, ExportRange, statement("exports", "list_exports"), {"id": number, "limit": 1})
    if found is None:
        raise ExportFailedError(f"there is no export {number}; `pipeline export list` shows all")
    return found, queries.rows(connection, ExportFile, statement("exports", "export_files"), {"id": number})


def waiting_states(connection: Connection, config: Config) -> WaitingStates:
    """Return the waiting current states of the lake of these settings."""
    query = statement("exports", "waiting_states")
    return queries.one(connection, WaitingStates, query, {"directory": str(config.exports)}) or WaitingStates()


def hidden_states(connection: Connection, config: Config) -> list[HiddenState]:
    """Return the hidden states of the lake of these settings, and of the lakes in it."""
    query = statement("exports", "hidden_states")
    return queries.rows(connection, HiddenState, query, {"directory": str(config.exports)})


def unexchanged_folders(connection: Connection, config: Config) -> list[UnexchangedFolder]:
    """Return the folders that could not be exchanged, of the lake of these settings and of the lakes in it."""
    query = statement("exports", "unexchanged_folders")
    return queries.rows(connection, UnexchangedFolder, query, {"directory": str(config.exports)})


def keyless_tables(connection: Connection) -> list[str]:
    """Return `schema.table` of tables without a current state: no key identifies the row of a change."""
    return [
        f"{schema}.{name}" for schema, name in connection.execute(statement("exports", "keyless_tables")).fetchall()
    ]
