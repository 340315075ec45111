"""The work of each role, once its process holds it."""

from __future__ import annotations

import asyncio
import logging
import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Protocol

import psycopg

from pipeline.capture.source import blocked_transactions, slot_creation, sources
from pipeline.capture.source.sources import ReplicationSource
from pipeline.capture.source.walsender import application_name
from pipeline.config.settings import Config
from pipeline.errors import UndecodableChangeError
from pipeline.log import jumps
from pipeline.log.table import EventsTable
from pipeline.postgres import connections, role_locks, waits
from pipeline.postgres.connections import Connection
from pipeline.process.child import RETRY, Launch, program
from pipeline.process.fork_client import SiblingProcesses
from pipeline.process.signals import StopSignal, in_loop
from pipeline.server import announcements
from pipeline.wires.pgdeltastream.sessions.store import live_slots

if TYPE_CHECKING:
    from pipeline.log.shuffling.poison import PoisonChange

logger = logging.getLogger(__name__)

STANDBY_SECONDS = 2.0
"""Seconds between two attempts of a standby to take over a role."""


class StateReport(Protocol):
    """Stores the state of a role."""

    def __call__(self, state: role_locks.State, reason: str | None = None) -> None: ...


@dataclass(frozen=True)
class HeldRole:
    """A role that this process holds. `siblings`: None if no fork server has forked it."""

    config: Config
    connection: Connection
    stop: StopSignal
    report: StateReport
    siblings: SiblingProcesses | None

    def launch(self, helper: str, command: tuple[str, ...]) -> Launch:
        """Return how this role starts a helper: as a fork if there is a fork server, else as a program."""
        return partial(self.siblings.fork, helper) if self.siblings else program(command)


def _run_replication(role: HeldRole) -> None:
    config, connection, stop = role.config, role.connection, role.stop

    def lost(error: psycopg.Error) -> None:
        unavailable = connections.unavailable(config.database, "pipeline database", error)
        logger.error("role lost: %s", unavailable, extra={"action": "replication.role_lost"})
        os._exit(RETRY)  # as safe as a crash; a clean end might wait long for other answers

    with role_locks.keep_alive(connection, lost):  # the worker itself seldom uses this connection
        waits = partial(role.report, "waiting")
        if not outlive_shuffler(connection, waits, stop, STANDBY_SECONDS):
            return
        try:
            asyncio.run(_replicate(role))
        except UndecodableChangeError as error:
            _wait_at_blocked_transaction(role, error)
            raise


def _wait_at_blocked_transaction(role: HeldRole, error: UndecodableChangeError) -> None:
    """Report a transaction that the source cannot send, and wait before the next attempt."""
    from pipeline.capture.replication import undecodable

    connection, stop = role.connection, role.stop
    stored = sources.find(connection, role.config.source_id)
    reason = (stored and blocked_transactions.current(connection, stored.id)) or error
    role.report("waiting", str(reason))
    logger.error("stopped: %s", reason, extra={"action": "replication.unsendable"})
    if stored is not None:
        undecodable.wait_for_retry(connection, stored.id, stop)


async def _replicate(role: HeldRole) -> None:
    from pipeline.capture.catchup import helper
    from pipeline.capture.catchup.coordinator import CatchUpCoordinator
    from pipeline.capture.replication import prepare, undecodable
    from pipeline.capture.replication.stream import ReplicationStream
    from pipeline.log.staging.worker_claim import connect_staging
    from pipeline.log.writing.log_writer import WritingSettings

    config, connection, stop = role.config, role.connection, role.stop
    with connections.connect(config.source, "source", name="pipeline catalog") as source:
        stored = sources.find(connection, config.source_id)
        source_id = stored.id if stored else config.source_id or uuid.uuid4()
        stream = ReplicationStream(config.source, application_name(source_id))
        try:
            slot_creation.end_left_behind(source, connection)
            with waits.report_waits(partial(slot_creation.subject, config.slot), partial(role.report, "waiting")):
                prepared = prepare.prepare(config, source, connection, stream.identify(), source_id)
            for table, reason in prepared.publications.missing.items():
                logger.warning("%s is not captured: %s", table, reason, extra={"action": "publication.missing"})
            async with await connect_staging(config.database) as staging:
                start = await undecodable.skip_requested(connection, staging, prepared.source)
                stream.close()
                names = prepared.publications.names
                writing = WritingSettings.of(config, jumps.ticking(source))
                launch = role.launch(CATCH_UP, helper.COMMAND)
                coordinator = CatchUpCoordinator(
                    config, source, connection, staging, prepared.source, names, launch, live_slots, writing
                )
                stop.then(in_loop(coordinator.stop))
                await coordinator.run(start, _running(role, prepared.source))
        except UndecodableChangeError as error:
            undecodable.record(connection, prepared.source, error)
            raise
        except psycopg.Error as error:
            if connections.is_ours(error):
                raise
            raise connections.unavailable_one(source, config.source, config.database, error) from error
        finally:
            stream.close()


def _running(role: HeldRole, source: ReplicationSource) -> Callable[[], None]:
    """Return the function that reports that the stream has started, and logs it the first time."""
    announce_once = cache(partial(announcements.announce_replication, role.config, source))

    def running() -> None:
        role.report("running")
        announce_once()

    return running


def _run_shuffle(role: HeldRole) -> None:
    from pipeline.consumers.queue.queue_filler import QueueFiller
    from pipeline.log.shuffling.shuffler import Shuffler

    config, connection, stop = role.config, role.connection, role.stop
    while (source := sources.find(connection, config.source_id)) is None:
        role.report("waiting", "no source has been replicated from yet")
        if stop.wait(0.2):
            return
    table = EventsTable.parse(config.events_table)
    shuffler = Shuffler(
        connection,
        source.id,
        table,
        lambda: bool(stop),
        partial(jumps.clock_at, config.source),
        QueueFiller(connection, source.id, table),
        config.retention_seconds,
        config.routes,
        on_poison=config.on_poison,
    )
    role.report("running")
    logger.info("shuffling", extra={"action": "shuffle.running", "table": config.events_table})
    reported: str | None = None
    while True:
        stopping = bool(stop)  # asked before the step: it may look before something is staged, and end after a stop
        moved = shuffler.step()
        reported = _report_poison(role.report, shuffler.poison, reported)
        if moved < 0:
            if stopping:
                return
            if not stop:
                shuffler.wait()


def _report_poison(report: StateReport, poison: PoisonChange | None, reported: str | None) -> str | None:
    """Report once what blocks the shuffler, and once when it no longer does."""
    now = str(poison) if poison else None
    if now == reported:
        return reported
    report("waiting" if now else "running", now)
    if now:
        logger.error("stopped: %s", now, extra={"action": "shuffle.poisoned"})
    else:
        logger.info("the change can be written now; continuing", extra={"action": "shuffle.running"})
    return now


def _run_schedule(role: HeldRole) -> None:
    from pipeline.server import schedule

    role.report("running")
    schedule.run(role.config, role.connection, role.stop, partial(role.report, "running"))


def _run_snapshot(role: HeldRole) -> None:
    from pipeline.snapshots import role as snapshot
    from pipeline.snapshots import worker

    while not role.stop:
        snapshot.run(role.config, role.connection, role.stop, role.launch(READ_TABLES, worker.COMMAND), role.report)


def _run_followers(role: HeldRole) -> None:
    from pipeline.followers.running import applier_process
    from pipeline.followers.running import role as followers

    followers.run_role(
        role.config, role.connection, role.stop, role.launch(FOLLOW, applier_process.COMMAND), role.report
    )


def _help_to_catch_up() -> int:
    from pipeline.capture.catchup import helper

    return helper.main()


def _read_tables() -> int:
    from pipeline.snapshots import worker

    return worker.main()


def _follow() -> int:
    from pipeline.followers.running import applier_process

    return applier_process.main()


RUNNERS: dict[str, Callable[[HeldRole], None]] = {
    "replication": _run_replication,
    "snapshot": _run_snapshot,
    "shuffle": _run_shuffle,
    "schedule": _run_schedule,
    "followers": _run_followers,
}


def _run_serving(name: str, config: Config, server: str, stop: StopSignal) -> None:
    from pipeline.server import served_endpoints

    (served_endpoints.serve_http if name == "api" else served_endpoints.serve_grpc)(config, server, stop)


ANYWHERE = {name: partial(_run_serving, name) for name in ("api", "grpc")}
"""The roles that serve clients, which any number of servers may run at once."""
CATCH_UP, READ_TABLES, FOLLOW = "catch-up", "snapshot worker", "follower"
HELPERS: dict[str, Callable[[], int]] = {CATCH_UP: _help_to_catch_up, READ_TABLES: _read_tables, FOLLOW: _follow}
"""Processes that roles request from the fork server."""

ALL_NEED = ("importlib.readers",)
"""Modules that every role imports, to read `.sql` files."""
NEEDS = {
    "replication": (
        "concurrent.futures.thread",
        "pipeline.capture.catchup.coordinator",
        "pipeline.capture.replication.undecodable",
        "pipeline.capture.catchup.helper",
    ),
    "snapshot": ("pipeline.snapshots.role", "pipeline.snapshots.worker"),
    "shuffle": ("pipeline.log.shuffling.shuffler", "pipeline.consumers.queue.queue_filler"),
    "schedule": ("concurrent.futures.thread", "pipeline.server.schedule", "apscheduler.triggers.interval"),
    "followers": ("pipeline.followers.running.role", "pipeline.followers.running.applier_process"),
    "api": ("pipeline.server.served_endpoints", "uvicorn.lifespan.on", "uvicorn.loops.asyncio"),
    "grpc": (
        "concurrent.futures.thread",
        "pipeline.rpc.server",
        "pipeline.rpc.event_log.service",
        "pipeline.wires.walstream.service",
    ),
}
"""Modules that roles import, and libraries import late. Imported once before the fork, their memory is shared."""


def outlive_shuffler(connection: Connection, report: Callable[[str], None], stop: StopSignal, every: float) -> bool:
    """Wait until the shuffler can read what this version's worker stages; False if it is asked to stop before.

    `report` is called with what it waits for; `every`: seconds between two checks.
    """
    waited_for: str | None = None
    while (older := role_locks.older_holder(connection, "shuffle")) is not None:
        if older != waited_for:
            reason = f"the shuffler of {older} is of an older version, which cannot read what this one stages: end it"
            report(reason)
            logger.warning("waiting: %s", reason, extra={"action": "replication.waiting"})
            waited_for = older
        if stop.wait(every):
            return False
    return True
