"""Creates a session: brings publications up to date, creates a slot, and exports the snapshot of that slot.

The order guarantees that no change is missing. Tables join the publications before the slot is created. Creating a slot
waits for every running transaction, so a transaction that wrote to such a table before it joined is in the snapshot,
and all later ones are in the stream (postgres-facts.md 14). The row is stored before the slot exists, so that no slot
is forgotten.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

import psycopg

from pipeline.capture.catchup import limits
from pipeline.capture.replication import prepare
from pipeline.capture.source import publication_ledger, slots, sources, synchronous_standbys, timeline
from pipeline.capture.source.sources import ReplicationSource
from pipeline.config.settings import Config
from pipeline.errors import PipelineError, SessionRefusedError, SessionsFullError, SlotExistsError
from pipeline.postgres import connections, queries, role_locks
from pipeline.postgres.connections import Connection
from pipeline.wal import lsn
from pipeline.wires.pgdeltastream.sessions import backends, bounds, exporting, store
from pipeline.wires.pgdeltastream.sessions.snapshot import ExportedSnapshot
from pipeline.wires.pgdeltastream.sessions.store import NAME_PREFIX, StoredSession, walsender_name

logger = logging.getLogger(__name__)

SLOT_SECONDS = 30.0
"""How long creating a slot may wait for open transactions."""
START_SECONDS = 10.0
"""How long to wait for the publications of a server that has just started."""
ALL_SECONDS = 90.0
"""How long a database may take for everything else: a frozen database accepts connections and never answers."""
LOCK_SECONDS = 10.0
_LOCK = "sessions"
_NAMES = 50
"""How many names are tried."""
_SLOT_NAMES = "select slot_name::text from pg_catalog.pg_replication_slots"
"""The names of all slots of the cluster, of every kind and database."""
SPARE = 1
"""How many slots and walsenders must stay free, so that the worker can always reconnect."""

UNUSED_SECONDS = 10.0
"""Seconds after which a session that was never used makes room for a client of the same address."""
READ_SECONDS = 60.0
"""Seconds after which a session that was read, but never streamed, makes room for a client of the same address."""
AWAY_SECONDS = 300.0
"""Seconds without use after which any session makes room: a client that restarts for a deployment keeps its session."""


def create(
    config: Config, wire: str, name: Callable[[], str], address: str | None = None, *, waits: float = SLOT_SECONDS
) -> ExportedSnapshot:
    """Create a session, whose snapshot can be read until the returned object is closed. Blocks.

    `name` returns names for the slot. `address`: the client's. `waits`: seconds for which creating the slot may wait
    for running transactions. Raises SessionsFullError, or another PipelineError with the reason, for the log. Then no
    session is left, or the leader's `bounds.enforce` removes it.
    """
    seconds = ALL_SECONDS + waits
    with (
        connections.answering(config.source, "source", seconds, name="pipeline session") as source,
        connections.answering(config.database, "pipeline database", seconds, name="pipeline session") as pipeline,
    ):
        try:
            stored, publications = _prepared(config, source, pipeline)
            made = _Creation(config, source, pipeline, stored, wire, address).run(name, waits)
        except psycopg.Error as error:
            raise connections.unavailable_one(source, config.source, config.database, error) from error
    session, connection, snapshot = made
    logger.info(
        'session "%s" was made, from %s on',
        session.slot,
        lsn.show(session.position or 0),
        extra={"action": "session.created", "session": session.slot, "wire": wire},
    )
    return ExportedSnapshot(session, snapshot, publications, connection)


def _prepared(config: Config, source: Connection, pipeline: Connection) -> tuple[ReplicationSource, tuple[str, ...]]:
    """Bring the publications up to date; return the source and the publications that are in use."""
    prepare.require_fit(source)
    deadline = time.monotonic() + START_SECONDS
    while (stored := _with_publications(config, source, pipeline)) is None:
        if time.monotonic() > deadline:
            raise SessionRefusedError(
                "the publications of the source do not exist yet, or were dropped: no worker has begun to replicate "
                "from it; `pipeline status` says why"
            )
        time.sleep(0.2)
    there = timeline.read_identity(source)
    if (there.system_identifier, there.database) != (stored.system_identifier, stored.database_name):
        raise SessionRefusedError(
            f"the source is database {there.database} of cluster {there.system_identifier}, and not "
            f"{stored.database_name} of {stored.system_identifier} as before; {timeline.ADOPT}"
        )
    prepare.publish_new_tables(config, source, pipeline)
    return stored, tuple(publication_ledger.known_publications(stored))


def _with_publications(config: Config, source: Connection, pipeline: Connection) -> ReplicationSource | None:
    stored = sources.find(pipeline, config.source_id)
    names = list(publication_ledger.known_publications(stored)) if stored else []
    return stored if names and len(publication_ledger.read_publications(source, names)) == len(names) else None


@dataclass(frozen=True)
class _Creation:
    config: Config
    source: Connection
    pipeline: Connection
    stored: ReplicationSource
    wire: str
    address: str | None

    def run(self, name: Callable[[], str], waits: float) -> tuple[StoredSession, Connection, str]:
        """Create the session; return it, the connection that exports its snapshot, and the snapshot's name."""
        for _ in range(_NAMES):
            # Two clients at the same time must count each other's session.
            with role_locks.hold_lock(self.pipeline, _LOCK, LOCK_SECONDS):
                self._make_room()
                session = self._reserve(name)
            with suppress(SlotExistsError):
                return self._export(session, waits)
        raise _no_name()

    def _make_room(self) -> None:
        """End the sessions that yield, until there is room. Raises SessionsFullError if too few of them may end yet."""
        require_nobody_waits(self.source)
        live = [session for session in store.live(self.pipeline) if session.source_id == self.stored.id]
        while (lacking := self._lacking(live)) is not None:
            if not live:
                raise SessionRefusedError(lacking)
            there = bounds.facts(self.config, self.source, live)
            in_use = {session.id for session in live if there[session.id].in_use}
            now: datetime = queries.value(self.pipeline, "select now()")
            yields = first_to_yield(live, in_use, self.address, now)
            if yields is None:
                raise SessionsFullError(f"{lacking}: {kept_until(live, in_use, self.address)}")
            bounds.end(self.config, self.source, self.pipeline, yields, yield_reason(yields, self.address))
            live.remove(yields)

    def _lacking(self, live: list[StoredSession]) -> str | None:
        if len(live) >= self.config.sessions_max:
            return f"PIPELINE_SESSIONS_MAX = {self.config.sessions_max} is reached"
        return source_lacks(self.source, live)

    def _reserve(self, name: Callable[[], str]) -> StoredSession:
        """Store the row of a session under a name that is free."""
        taken = {row[0] for row in self.source.execute(_SLOT_NAMES).fetchall()}
        taken |= store.kept_slots(self.pipeline)  # their slots are ended and dropped by name
        for _ in range(_NAMES):
            if (slot := name()) in taken:
                continue
            session = store.begin(
                self.pipeline,
                slot=slot,
                wire=self.wire,
                source_id=self.stored.id,
                epoch=self.stored.epoch,
                system_identifier=self.stored.system_identifier,
                made_after=timeline.read_identity(self.source).flushed,
                address=self.address,
            )
            if session is not None:
                return session
        raise _no_name()

    def _export(self, session: StoredSession, waits: float) -> tuple[StoredSession, Connection, str]:
        """Create the slot, and mark the session as ready.

        After an error there is no slot, and the session has ended.
        """
        connection: Connection | None = None
        try:
            connection = exporting.connect(self.config.source, session.slot)
            made = exporting.make(connection, self.config.source, session.slot, waits)
            ready = store.ready(self.pipeline, session.id, made.position)
            if ready is None:
                raise SessionRefusedError(f'session "{session.slot}" was ended while its slot was made')
        except BaseException as error:
            if connection is not None:
                connection.close()
            self._give_up(session, error)
            raise
        return ready, connection, made.snapshot

    def _give_up(self, session: StoredSession, error: BaseException) -> None:
        try:
            if isinstance(error, SlotExistsError):  # another program created that slot
                store.end(self.pipeline, session.id, str(error))
                store.dropped(self.pipeline, session.id)
            else:
                why = connections.one_line(error)
                reason = f"it could not be made: {why}"
                bounds.end(self.config, self.source, self.pipeline, session, reason, logging.DEBUG)
        except (PipelineError, psycopg.Error) as another:
            why = connections.one_line(another)
            logger.warning('session "%s" is ended later: %s', session.slot, why, extra={"action": "session.slot_kept"})


def _no_name() -> SessionRefusedError:
    return SessionRefusedError(
        f"none of {_NAMES} names for a slot was free; drop replication slots that are not needed"
    )


def source_lacks(source: Connection, live: Sequence[StoredSession]) -> str | None:
    """Return what the source lacks for one more session, with the remedy; None if it can spare a slot and a walsender.

    `live`: the sessions that have not ended. Each counts with the slot and the walsender that it has or will take.
    """
    lacking_slots, lacking_senders = _still_to_come(source, live)
    room = limits.read_capacity(source)
    for setting, free, most, needed in (
        ("max_replication_slots", room.free_slots, room.max_slots, lacking_slots),
        ("max_wal_senders", room.free_senders, room.max_senders, lacking_senders),
    ):
        if free - needed < 1 + SPARE:
            awaited = f", and {needed} of them other sessions will need" if needed else ""
            return (
                f"the source has {max(0, free)} of its {setting} = {most} free{awaited}: a session needs one, and one "
                f"stays free for the worker; raise {setting} at the source, or end sessions that are not needed"
            )
    return None


def _still_to_come(source: Connection, live: Sequence[StoredSession]) -> tuple[int, int]:
    """Return how many slots and walsenders these sessions will still take."""
    there = {slot.name for slot in slots.all_slots(source)}
    reading = {each.name for each in backends.find(source, live) if each.walsender}
    return (
        sum(session.slot not in there for session in live),
        sum(walsender_name(session.slot) not in reading for session in live),
    )


def require_nobody_waits(source: Connection) -> None:
    """Raise SessionRefusedError if commits at the source would wait for a session's client."""
    names = queries.value(source, "select current_setting('synchronous_standby_names')")
    if synchronous_standbys.can_choose(names, NAME_PREFIX):
        raise SessionRefusedError(
            f"synchronous_standby_names = '{names}' can choose a session's walsender, and users' commits would wait "
            "for what its client acknowledges; list the standbys by name there"
        )


def first_to_yield(
    live: Sequence[StoredSession], in_use: Collection[int], address: str | None, now: datetime
) -> StoredSession | None:
    """Return the session that makes room for a client of this address, or None. `in_use`: ids of sessions.

    Sessions that were never used go first, then those that were read, then those that were streamed. Among equals, the
    session goes that was unused for the longest time.
    """
    able = [
        each for each in live if each.id not in in_use and each.state == "ready" and now >= _yields_at(each, address)
    ]
    return min(able, key=lambda each: (_unused_seconds(each, address), each.used_at), default=None)


def yield_reason(session: StoredSession, address: str | None) -> str:
    """Return why the session has ended, for its client."""
    return f"it made room for another session: no client had used it for {_unused_seconds(session, address):g} s"


def kept_until(live: Sequence[StoredSession], in_use: Collection[int], address: str | None) -> str:
    """Return until when each session is kept, for a client of this address."""
    return ", ".join(f"{each.slot} {_kept_how_long(each, in_use, address)}" for each in live)


def _kept_how_long(session: StoredSession, in_use: Collection[int], address: str | None) -> str:
    if session.state != "ready":
        return "is being made"
    if session.id in in_use:
        return "is in use"
    return f"is kept until {_yields_at(session, address):%Y-%m-%d %H:%M:%S %Z}"


def _yields_at(session: StoredSession, address: str | None) -> datetime:
    return session.used_at + timedelta(seconds=_unused_seconds(session, address))


def _unused_seconds(session: StoredSession, address: str | None) -> float:
    if address is None or session.address != address or session.used_for == "stream":
        return AWAY_SECONDS
    return UNUSED_SECONDS if session.used_for is None else READ_SECONDS
