"""The process of a role: wait until this server holds it, run it, report why it ended. And its fork server."""

from __future__ import annotations

import logging
import os
import platform
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module

import psycopg
from setproctitle import setproctitle

from pipeline import logs
from pipeline.config import settings
from pipeline.config.settings import Config
from pipeline.errors import DatabaseUnavailableError, FencedError, PipelineError, SlotInUseError, UndecodableChangeError
from pipeline.postgres import connections, role_locks, waits
from pipeline.postgres.connections import Connection
from pipeline.process import memory
from pipeline.process.child import RETRY
from pipeline.process.fork_client import SiblingProcesses
from pipeline.process.fork_server import fork_on_request
from pipeline.process.signals import StopSignal, live_with_parent, read_settings
from pipeline.server import runners
from pipeline.server.runners import STANDBY_SECONDS, HeldRole

logger = logging.getLogger(__name__)

CLIENTS_NICENESS = 5
"""Roles that serve clients yield to those that write the log, so that a flood of requests does not hold up events."""

_supervisor = 0
"""The supervisor's pid, which identifies this server; the parent of a role is the fork server."""
_siblings: SiblingProcesses | None = None
"""The fork server's other processes; None if no fork server has forked this one."""
RETRIED: tuple[type[PipelineError], ...] = (
    DatabaseUnavailableError,
    SlotInUseError,
    FencedError,
    UndecodableChangeError,
)
"""Errors after which a role is started again; every other PipelineError stops the server with its plain line."""


def serve_forks(chosen: Sequence[str]) -> int:
    """Import what these roles need, and fork them on request; also `python -m pipeline.server.roles ROLE …`."""
    setproctitle("pipeline: fork server")
    supervisor = os.getppid()
    forked = fork_on_request(partial(_load, chosen))
    if forked is None:
        return 0
    name, siblings = forked
    return runners.HELPERS[name]() if name in runners.HELPERS else run(name, supervisor, siblings)


def _load(chosen: Sequence[str]) -> None:
    for module in (*runners.ALL_NEED, *(module for role in chosen for module in runners.NEEDS[role])):
        import_module(module)


def run(role: str, supervisor: int, siblings: SiblingProcesses | None = None) -> int:
    """Run this role with the settings in the first line of standard input; returns the exit status.

    `supervisor`: the pid that identifies this server.
    """
    global _supervisor, _siblings
    _supervisor, _siblings = supervisor, siblings
    setproctitle(f"pipeline: {role}")
    if (received := read_settings()) is None:
        return RETRY
    config = settings.from_json(received)
    logs.setup(config.log_level, config.log_format, role)
    stop = StopSignal(ignore_interrupt=True)
    waits.end_at_stop(stop)
    live_with_parent()
    try:
        _hold_and_run(role, config, stop)
    except PipelineError as error:
        level = logging.INFO if stop and isinstance(error, RETRIED) else logging.ERROR  # it ends anyway
        logger.log(level, "%s", error, extra={"action": f"{role}.failed"})
        return RETRY if isinstance(error, RETRIED) else error.exit_code
    except Exception:
        logger.exception("unexpected error", extra={"action": f"{role}.failed"})
        return RETRY
    return 0


def _hold_and_run(role: str, config: Config, stop: StopSignal) -> None:
    if role in runners.ANYWHERE:  # any number may answer requests
        os.nice(CLIENTS_NICENESS)
        memory.return_freed()
        runners.ANYWHERE[role](config, server_name(), stop)
        return
    with connections.connect(config.database, "pipeline database", name=f"pipeline {role}") as connection:
        try:
            if not _acquire(connection, role, stop):
                return
            _report(connection, role, "starting")
            report = partial(_report, connection, role)
            runners.RUNNERS[role](HeldRole(config, connection, stop, report, _siblings))
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


def _acquire(connection: Connection, role: str, stop: StopSignal) -> bool:
    """Wait until this server holds the role; False if it is asked to stop before."""
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
    """Return the name of this server, unique among others: host and the supervisor's pid."""
    return f"{platform.node()}:{_supervisor}"


if __name__ == "__main__":
    sys.exit(serve_forks(sys.argv[1:]))
