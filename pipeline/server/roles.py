"""A role's process: waits until this server holds the role, runs it, and reports why it ended. And its fork server."""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import sys
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

import psycopg
from setproctitle import setproctitle

from pipeline import logs
from pipeline.capture.source import blocked_transactions, sources
from pipeline.config import settings
from pipeline.config.settings import Config
from pipeline.errors import Fenced, PipelineError, SlotInUse, Unavailable, Undecodable
from pipeline.log.table import EventsTable
from pipeline.postgres import connections, role_locks
from pipeline.postgres.connections import Connection
from pipeline.process.child import RETRY, program
from pipeline.process.fork_client import Siblings
from pipeline.process.fork_server import fork_on_request
from pipeline.process.signals import Stop, in_loop, live_with_parent, read_settings
from pipeline.server import older_servers

if TYPE_CHECKING:
    from pipeline.shuffle.poison import Poison

logger = logging.getLogger(__name__)

_supervisor = 0
"""The supervisor's pid, by which this server is known; a role's parent is the fork server."""
_siblings: Siblings | None = None
"""None where this process was not forked by a fork server."""
STANDBY_SECONDS = 2.0
"""How often a standby tries to take over a role."""
RETRIED: tuple[type[PipelineError], ...] = (Unavailable, SlotInUse, Fenced, Undecodable)
"""Errors after which a role is started again; every other PipelineError stops the server with its plain line."""


def serve_forks(chosen: Sequence[str]) -> int:
    """Import what these roles need, and fork them on request; also `python -m pipeline.server.roles ROLE …`."""
    setproctitle("pipeline: fork server")
    supervisor = os.getppid()
    forked = fork_on_request(partial(_load, chosen))
    if forked is None:
        return 0
    name, siblings = forked
    return _HELPERS[name]() if name in _HELPERS else run(name, supervisor, siblings)


def _load(chosen: Sequence[str]) -> None:
    for role in chosen:
        for module in _NEEDS[role]:
            import_module(module)


def run(role: str, supervisor: int, siblings: Siblings | None = None) -> int:
    """Run this role with the settings in the first line of standard input; returns the exit status.

    `supervisor`: the pid by which this server is known.
    """
    global _supervisor, _siblings
    _supervisor, _siblings = supervisor, siblings
    setproctitle(f"pipeline: {role}")
    if (received := read_settings()) is None:
        return RETRY
    config = settings.from_json(received)
    logs.setup(config.log_level, config.log_format, role)
    stop = Stop(ignore_interrupt=True)
    live_with_parent()
    try:
        _hold_and_run(role, config, stop)
    except PipelineError as error:
        logger.error("%s", error, extra={"action": f"{role}.failed"})
        return RETRY if isinstance(error, RETRIED) else error.exit_code
    except Exception:
        logger.exception("unexpected error", extra={"action": f"{role}.failed"})
        return RETRY
    return 0


def _hold_and_run(role: str, config: Config, stop: Stop) -> None:
    if role == "api":  # any number may answer requests
        _run_api(config, stop)
        return
    with connections.connect(config.database, "pipeline database", name=f"pipeline {role}") as connection:
        try:
            if not _acquire(connection, role, stop):
                return
            _report(connection, role, "starting")
            _RUNNERS[role](config, connection, stop)
            _report(connection, role, "stopped")
        except PipelineError as error:
            _report_end(connection, role, error)
            raise
        except psycopg.Error as error:
            if connections.is_ours(error):
                raise
            unavailable = connections.unavailable(config.database, "pipeline database", error)
            _report_end(connection, role, unavailable)
            raise unavailable from error


def _report_end(connection: Connection, role: str, error: PipelineError) -> None:
    state: role_locks.State = "waiting" if isinstance(error, RETRIED) else "failed"
    with suppress(psycopg.Error):  # the connection may be what broke
        _report(connection, role, state, str(error))


def _acquire(connection: Connection, role: str, stop: Stop) -> bool:
    """Wait until this server holds the role; False when asked to stop before."""
    logged = False
    while not role_locks.try_acquire(connection, role):
        if not logged:
            holder = role_locks.states(connection).get(role)
            logger.info(
                "standing by: %s is held by %s",
                role,
                holder.server if holder else "another server",
                extra={"action": f"{role}.standby"},
            )
            logged = True
        if stop.wait(STANDBY_SECONDS):
            return False
    return not stop


def _report(connection: Connection, role: str, state: role_locks.State, reason: str | None = None) -> None:
    role_locks.report(connection, role, server_name(), os.getpid(), state, reason)


def server_name() -> str:
    """The name of this server, unique among others: host and the supervisor's pid."""
    return f"{platform.node()}:{_supervisor}"


def _run_replication(config: Config, connection: Connection, stop: Stop) -> None:
    def lost(error: psycopg.Error) -> None:
        unavailable = connections.unavailable(config.database, "pipeline database", error)
        logger.error("role lost: %s", unavailable, extra={"action": "replication.role_lost"})
        os._exit(RETRY)  # as safe as a crash; a clean end might wait long for other answers

    with role_locks.beating(connection, lost):  # the worker itself seldom uses this connection
        waits = partial(_report, connection, "replication", "waiting")
        if not older_servers.outlive_shuffler(connection, waits, stop, STANDBY_SECONDS):
            return
        try:
            asyncio.run(_replicate(config, connection, stop))
        except Undecodable as error:
            _wait_at_blocked_transaction(config, connection, stop, error)
            raise


def _wait_at_blocked_transaction(config: Config, connection: Connection, stop: Stop, error: Undecodable) -> None:
    """The source cannot send a transaction: report it, and wait before the next attempt."""
    from pipeline.capture.replication import undecodable

    stored = sources.find(connection, config.source_id)
    reason = (stored and blocked_transactions.current(connection, stored.id)) or error
    _report(connection, "replication", "waiting", str(reason))
    logger.error("stopped: %s", reason, extra={"action": "replication.unsendable"})
    if stored is not None:
        undecodable.wait(connection, stored.id, stop)


async def _replicate(config: Config, connection: Connection, stop: Stop) -> None:
    from pipeline.capture.catchup import helper
    from pipeline.capture.catchup.coordinator import Coordinator
    from pipeline.capture.replication import prepare, undecodable
    from pipeline.capture.replication.stream import ReplicationStream
    from pipeline.staging.writer import connect_writer

    with connections.connect(config.source, "source", name="pipeline catalog") as source:
        stored = sources.find(connection, config.source_id)
        source_id = stored.id if stored else config.source_id or uuid.uuid4()
        stream = ReplicationStream(config.source, source_id)
        try:
            prepared = prepare.prepare(config, source, connection, stream.identify(), source_id)
            for table, reason in prepared.publications.missing.items():
                logger.warning("%s is not captured: %s", table, reason, extra={"action": "publication.missing"})
            async with await connect_writer(config.database) as staging:
                start = await undecodable.skip_requested(connection, staging, prepared.source)
                stream.close()
                names = prepared.publications.names
                launch = partial(_siblings.fork, _CATCH_UP) if _siblings else program(helper.COMMAND)
                coordinator = Coordinator(config, source, connection, staging, prepared.source, names, launch)
                stop.then(in_loop(coordinator.stop))
                await coordinator.run(start, partial(_report, connection, "replication", "running"))
        except Undecodable as error:
            undecodable.record(connection, prepared.source, error)
            raise
        except psycopg.Error as error:
            if connections.is_ours(error):
                raise
            raise connections.unavailable_one(source, config.source, config.database, error) from error
        finally:
            stream.close()


def _run_shuffle(config: Config, connection: Connection, stop: Stop) -> None:
    from pipeline.shuffle.worker import Shuffler

    while (source := sources.find(connection, config.source_id)) is None:
        _report(connection, "shuffle", "waiting", "no source has been replicated from yet")
        if stop.wait(0.2):
            return
    table = EventsTable.parse(config.events_table)
    shuffler = Shuffler(
        connection,
        source.id,
        table,
        lambda: bool(stop),
        config.retention_seconds,
        config.routes,
        on_poison=config.on_poison,
    )
    _report(connection, "shuffle", "running")
    logger.info("shuffling", extra={"action": "shuffle.running", "table": config.events_table})
    reported: str | None = None
    while True:
        moved = shuffler.step()
        reported = _report_poison(connection, shuffler.poison, reported)
        if moved < 0:
            if stop:
                return
            shuffler.wait()


def _report_poison(connection: Connection, poison: Poison | None, reported: str | None) -> str | None:
    """Report once what blocks the shuffler, and once when it no longer does."""
    now = str(poison) if poison else None
    if now == reported:
        return reported
    _report(connection, "shuffle", "waiting" if now else "running", now)
    if now:
        logger.error("stopped: %s", now, extra={"action": "shuffle.poisoned"})
    else:
        logger.info("the change can be written now; continuing", extra={"action": "shuffle.running"})
    return now


def _run_schedule(config: Config, connection: Connection, stop: Stop) -> None:
    from pipeline.server import schedule

    _report(connection, "schedule", "running")
    schedule.run(config, connection, stop)


def _run_api(config: Config, stop: Stop) -> None:
    from pipeline.api import app

    app.run(config, server_name(), stop)


def _help_to_catch_up() -> int:
    from pipeline.capture.catchup import helper

    return helper.main()


_RUNNERS: dict[str, Callable[[Config, Connection, Stop], None]] = {
    "replication": _run_replication,
    "shuffle": _run_shuffle,
    "schedule": _run_schedule,
}
_CATCH_UP = "catch-up"
_HELPERS: dict[str, Callable[[], int]] = {_CATCH_UP: _help_to_catch_up}
"""Processes that a role asks the fork server for."""

_NEEDS = {
    "replication": (
        "concurrent.futures.thread",
        "pipeline.capture.catchup.coordinator",
        "pipeline.capture.replication.undecodable",
    ),
    "shuffle": ("pipeline.shuffle.worker",),
    "schedule": ("concurrent.futures.thread", "pipeline.server.schedule", "apscheduler.triggers.interval"),
    "api": ("pipeline.api.app", "uvicorn.lifespan.on", "uvicorn.loops.asyncio", "uvicorn.protocols.http.h11_impl"),
}
"""What the roles import, and what libraries import late: imported once before the fork, its memory is shared."""


if __name__ == "__main__":
    sys.exit(serve_forks(sys.argv[1:]))
