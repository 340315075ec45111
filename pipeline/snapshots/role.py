"""The snapshot role: the coordinator in this process, and a few workers, each in a separate process."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress

import psycopg

from pipeline.capture.source import sources
from pipeline.capture.source.sources import ReplicationSource
from pipeline.config.settings import Config
from pipeline.errors import PipelineError
from pipeline.log.staging import progress
from pipeline.postgres import connections, role_locks
from pipeline.postgres.connections import Connection
from pipeline.process.child import POLL, ChildProcess, Launch
from pipeline.process.children import end_all
from pipeline.process.signals import StopSignal
from pipeline.snapshots.coordinator import SnapshotCoordinator

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
"""Seconds between two steps of the coordinator."""
LOCK_TIMEOUT = "2s"
"""The lock timeout at the pipeline database, so that a locked table does not keep the role from ending."""
END_SECONDS = 10.0
"""How many seconds a worker has to finish its range."""


def run(config: Config, connection: Connection, stop: StopSignal, launch: Launch, report: Callable[..., None]) -> None:
    """Read tables until told to stop, or until another epoch begins. `connection` holds the role."""
    with role_locks.keep_alive(connection, lambda _: None):  # the next use of it finds that it broke
        found = _wait_for_stream(config, connection, stop, report)
        if found is None:
            return
        stored, from_lsn = found
        children = [
            ChildProcess(f"snapshot worker {number + 1}", launch, config.to_json())
            for number in range(config.snapshot_workers)
        ]
        try:
            with connections.connect(config.source, "source", name="pipeline snapshot") as source:
                _lead(
                    SnapshotCoordinator(config, source, connection, stored, from_lsn),
                    children,
                    connection,
                    stored,
                    stop,
                    report,
                )
        except psycopg.Error as error:
            if connections.is_ours(error):
                raise
            raise connections.unavailable_one(source, config.source, config.database, error) from error
        finally:
            end_all(children, END_SECONDS)


def _wait_for_stream(
    config: Config, connection: Connection, stop: StopSignal, report: Callable[..., None]
) -> tuple[ReplicationSource, int] | None:
    """Wait until the source has a slot, and return the source and the LSN where its epoch begins; None if told to stop.

    Rows that are read before there is a slot would miss the changes until then.
    """
    waiting = False
    while not stop:
        stored = sources.find(connection, config.source_id)
        if stored is not None and progress.staged(connection, stored.id) is not None:
            begins = sources.epoch_begins(connection, stored.id, stored.epoch)
            if begins is not None:
                return stored, begins
        if not waiting:
            report("waiting", "no source has been replicated from yet")
            waiting = True
        stop.wait(LOOK_SECONDS)
    return None


def _lead(
    coordinator: SnapshotCoordinator,
    children: list[ChildProcess],
    connection: Connection,
    stored: ReplicationSource,
    stop: StopSignal,
    report: Callable[..., None],
) -> None:
    report("running")
    connection.execute(f"set lock_timeout = '{LOCK_TIMEOUT}'".encode())
    looks = round(LOOK_SECONDS / POLL)
    count, needed = 0, False
    while not stop:
        if count % looks == 0:
            now = sources.find(connection, stored.id)
            if now is None or now.epoch != stored.epoch:
                return
            with suppress(psycopg.errors.LockNotAvailable):  # the next step tries again
                needed = coordinator.step()
        count += 1
        for child in children:
            _keep(child, needed=needed)
        stop.wait(POLL)


def _keep(child: ChildProcess, *, needed: bool) -> None:
    code = child.ended()
    if code is not None:
        if code == 0:
            child.forget()
        elif not child.start_again(code):
            child.forget()
            raise PipelineError(f"{child.role} cannot continue; see its last line")
    if needed and child.process is None and time.monotonic() >= child.restart_at:
        child.start()
    elif not needed and child.process is not None:
        child.retire(END_SECONDS)
