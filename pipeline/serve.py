"""The composition root: migrate, start the roles each in a process of its own, and what each of them does."""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import socket
import sys
from collections.abc import Callable

import psycopg
from setproctitle import setproctitle

from pipeline import config as settings
from pipeline import databases, db, logs, schema
from pipeline.catalog import roles, sources
from pipeline.config import Config
from pipeline.db import Connection
from pipeline.errors import (
    AddressInUse,
    Fenced,
    PipelineError,
    SlotInUse,
    Unavailable,
)
from pipeline.events import log
from pipeline.events.log import EventsTable
from pipeline.loop import Stop, exit_with_parent, read_settings
from pipeline.replication import preparation
from pipeline.supervisor import RETRY, Supervisor

logger = logging.getLogger(__name__)

ROLES = ("replication", "shuffle", "schedule", "api")
"""In the order in which they are drained: upstream first."""
STANDBY_SECONDS = 2.0
"""How often a standby tries to take a role over."""
RETRIED: tuple[type[PipelineError], ...] = (Unavailable, SlotInUse, Fenced)
"""Errors after which a role is started again; every other PipelineError stops the server with its plain line."""


def serve(config: Config, only: str | None = None) -> int:
    """Run the server until it is told to stop; returns its exit status. Raises before anything was changed."""
    setproctitle("pipeline serve" + (f" --only {only}" if only else ""))
    chosen = (only,) if only else ROLES
    if "api" in chosen:
        _require_port(config)
    with databases.resolved(config) as resolved:
        boot(resolved)
        _say_hello(config, resolved, chosen)
        supervisor = Supervisor(chosen, _command, resolved.to_json())
        return supervisor.run(before_restart=lambda: _revive_embedded(config))


def boot(config: Config) -> None:
    """Refuse what cannot work, then bring the pipeline database to head."""
    source, pipeline = preparation.connect(config, name="pipeline boot")
    with source, pipeline:
        preparation.refuse_unfit(config, source, pipeline)
        schema.upgrade(config.database)
        log.ensure_table(pipeline, EventsTable.parse(config.events_table))


def main(argv: list[str]) -> int:
    """A role's process: `python -m pipeline.serve ROLE`, settings on standard input."""
    role = argv[0]
    config = settings.from_json(read_settings())
    setproctitle(f"pipeline: {role}")
    logs.setup(config.log_level, config.log_format, role)
    stop = Stop(ignore_interrupt=True)
    exit_with_parent()
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
    with db.connect(config.database, "pipeline database", name=f"pipeline {role}") as connection:
        try:
            if not _acquire(connection, role, stop):
                return
            _report(connection, role, "starting")
            _RUNNERS[role](config, connection, stop)
            _report(connection, role, "stopped")
        except PipelineError as error:
            state: roles.State = "waiting" if isinstance(error, RETRIED) else "failed"
            if not connection.broken:
                _report(connection, role, state, str(error))
            raise
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            raise db.unavailable(config.database, "pipeline database", error) from error


def _acquire(connection: Connection, role: str, stop: Stop) -> bool:
    """Wait until the role is ours; False when told to stop before."""
    told = False
    while not roles.try_acquire(connection, role):
        if not told:
            holder = roles.states(connection).get(role)
            logger.info(
                "standing by: %s is held by %s",
                role,
                holder.server if holder else "another server",
                extra={"action": f"{role}.standby"},
            )
            told = True
        if stop.wait(STANDBY_SECONDS):
            return False
    return not stop


def _report(connection: Connection, role: str, state: roles.State, reason: str | None = None) -> None:
    roles.report(connection, role, server_name(), os.getpid(), state, reason)


def server_name() -> str:
    """This server among others: host and the supervisor's pid."""
    return f"{platform.node()}:{os.getppid()}"


def _run_replication(config: Config, connection: Connection, stop: Stop) -> None:
    asyncio.run(_replicate(config, connection, stop))


async def _replicate(config: Config, connection: Connection, stop: Stop) -> None:
    from pipeline.replication.stream import ReplicationStream
    from pipeline.replication.worker import RelationBook, ReplicationWorker, connect_writer
    from pipeline.staging.writer import Writer

    with db.connect(config.source, "source", name="pipeline catalog") as source:
        stream = ReplicationStream(config.source)
        try:
            prepared = preparation.prepare(config, source, connection, stream.identify())
            for table, reason in prepared.publications.missing.items():
                logger.warning("%s is not captured: %s", table, reason, extra={"action": "publication.missing"})
            async with await connect_writer(config.database) as staging:
                writer = await Writer.claim(staging, prepared.source.id)
                stream.start(config.slot, writer.position, prepared.publications.names)
                worker = ReplicationWorker(stream, writer, RelationBook(source, connection, prepared.source))
                asyncio.get_running_loop().call_soon(stop.then, worker.stop)
                _report(connection, "replication", "running")
                logger.info("streaming", extra={"action": "replication.streaming", "slot": config.slot})
                await worker.run()
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            where, what = (config.source, "source") if source.broken else (config.database, "pipeline database")
            raise db.unavailable(where, what, error) from error
        finally:
            stream.close()


def _run_shuffle(config: Config, connection: Connection, stop: Stop) -> None:
    from pipeline.shuffle.worker import Shuffler

    while (source := sources.find(connection, config.source_id)) is None:
        _report(connection, "shuffle", "waiting", "no source has been replicated from yet")
        if stop.wait(0.2):
            return
    shuffler = Shuffler(connection, source.id, EventsTable.parse(config.events_table))
    _report(connection, "shuffle", "running")
    logger.info("shuffling", extra={"action": "shuffle.running", "table": config.events_table})
    while True:
        if shuffler.step() < 0:
            if stop:
                return
            shuffler.wait()


def _run_schedule(config: Config, connection: Connection, stop: Stop) -> None:
    from pipeline import schedule

    _report(connection, "schedule", "running")
    schedule.run(config, connection, stop)


def _run_api(config: Config, stop: Stop) -> None:
    from pipeline.api import app

    app.run(config, server_name(), stop)


_RUNNERS: dict[str, Callable[[Config, Connection, Stop], None]] = {
    "replication": _run_replication,
    "shuffle": _run_shuffle,
    "schedule": _run_schedule,
}


def _command(role: str) -> list[str]:
    return [sys.executable, "-m", "pipeline.serve", role]


def _revive_embedded(config: Config) -> None:
    """An embedded Postgres that another server stopped, or that was killed, is started again."""
    if databases.needs_embedded(config):
        try:
            databases.embedded_server(config).start()
        except PipelineError as error:
            logger.error("%s", error, extra={"action": "embedded.failed"})


def _require_port(config: Config) -> None:
    family = socket.AF_INET6 if ":" in config.http_host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((config.http_host, config.http_port))
        except OSError as error:
            raise AddressInUse(
                f"cannot listen on {config.http_host}:{config.http_port}: {error.strerror}; "
                "stop what uses it, or choose another PIPELINE_HTTP_PORT"
            ) from error


def _say_hello(config: Config, resolved: Config, chosen: tuple[str, ...]) -> None:
    if databases.needs_embedded(config):
        server = databases.embedded_server(config)
        for name, given in ((databases.SOURCE, config.source_dsn), (databases.PIPELINE, config.database_dsn)):
            if given is None:
                logger.info(
                    "embedded Postgres, database %s: %s",
                    name,
                    server.psql_command(name),
                    extra={"action": "serve.embedded"},
                )
    logger.info(
        "serving %s from %s to %s",
        ", ".join(chosen),
        settings.describe(resolved.source),
        settings.describe(resolved.database),
        extra={"action": "serve.serving"},
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
