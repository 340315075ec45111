"""Begins to stream a session's slot, or raises the reason against it. Blocks, so it runs in a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

import psycopg

from pipeline.capture.replication.stream import ReplicationStream
from pipeline.capture.source import own_tables, publication_ledger, slots, sources, synchronous_standbys, timeline
from pipeline.capture.source.own_tables import OwnTables
from pipeline.capture.source.slots import Slot
from pipeline.config.settings import Config, describe
from pipeline.errors import (
    DatabaseUnavailableError,
    SessionGoneError,
    SessionHeldError,
    SlotInUseError,
    SlotMissingError,
    SlotUnusableError,
    StatementRefusedError,
    UnknownSessionError,
)
from pipeline.postgres import connections, queries, session_settings
from pipeline.postgres.connections import Connection
from pipeline.wal import lsn
from pipeline.wires.pgdeltastream.sessions import backends, store
from pipeline.wires.pgdeltastream.sessions.store import StoredSession, walsender_name

ANSWER_SECONDS = 4.5
"""Seconds within which a session is opened or refused, so that its client has the reason after 5 seconds at most."""
CONNECT_SECONDS = 3
"""Seconds within which each connection must be accepted; Postgres takes milliseconds."""
LEAVE_SECONDS = 3.0
"""How long the walsender of a client that has gone may take to notice."""
SETTINGS = session_settings.SERVER
"""Settings of the walsender: as of the worker's, but with the database's own search path, by which names in values and
names of types are written."""
_RETRY_SECONDS = 0.02
_AGAIN = "begin another session"


@dataclass(frozen=True)
class OpenedStream:
    """A stream that has begun at `position`, and an ordinary connection to the source. `own`: the pipeline's tables."""

    stream: ReplicationStream
    source: Connection
    position: int
    own: OwnTables


def begin(config: Config, session: StoredSession | None, reader: str, gather: float) -> OpenedStream:
    """Begin to stream the session for `reader`, which its row names from then on.

    Raises UnknownSessionError, SessionGoneError, SessionHeldError, or another PipelineError, within little more than
    ANSWER_SECONDS.
    """
    session = _require_ready(session)
    with ExitStack() as undo:
        limit = undo.enter_context(_Limit(config))
        stream = ReplicationStream(
            config.source, walsender_name(session.slot), SETTINGS, gather=gather, timeout=CONNECT_SECONDS
        )
        undo.callback(stream.close)
        limit.add(stream.hang_up)
        source = undo.enter_context(_connect(config.source, "source", limit))
        with _connect(config.database, "pipeline database", limit) as pipeline:
            opened = _begin(config, session, reader, stream, source, pipeline)
        limit.lift()
        undo.pop_all()
        return opened


def _begin(
    config: Config,
    session: StoredSession,
    reader: str,
    stream: ReplicationStream,
    source: Connection,
    pipeline: Connection,
) -> OpenedStream:
    stored = sources.find(pipeline, session.source_id)
    _require_nobody_waits(source, session)
    publications = list(publication_ledger.known_publications(stored)) if stored else []
    own = own_tables.read(source, pipeline, config.events_tables)
    until = time.monotonic() + LEAVE_SECONDS
    while True:
        slot = slots.find(source, session.slot)  # read before the row: a position is stored before it is confirmed
        fresh = _require_ready(store.find(pipeline, session.wire, session.slot), session)
        if stored is None or stored.epoch != fresh.epoch:
            raise gone(session, "the source was adopted in another state since")
        position = _require_whole(source, fresh, slot)
        try:
            if slot is not None and slot.active_pid is not None:
                raise SlotInUseError(f"pid {slot.active_pid} reads it")
            stream.begin(session.slot, position, publications)
            break
        except SlotInUseError as error:
            if time.monotonic() > until:
                raise _held(fresh, slot) from error
            time.sleep(_RETRY_SECONDS)
        except (SlotMissingError, SlotUnusableError) as error:
            raise gone(session, str(error)) from error
    values = {"id": session.id, "reader": reader}
    if queries.value(pipeline, queries.statement("wires.pgdeltastream.sessions", "claim_session"), values) is None:
        raise gone(session, "it was ended just now")
    backends.end_exporting(source, session)
    return OpenedStream(stream, source, position, own)


def _require_ready(found: StoredSession | None, expected: StoredSession | None = None) -> StoredSession:
    if found is None or found.state == "making":
        raise UnknownSessionError("no such session was made here")
    if found.state == "ended" or (expected is not None and found.id != expected.id):
        raise ended(found)
    return found


def ended(session: StoredSession) -> SessionGoneError:
    """Return the error for a session that has ended."""
    return gone(session, session.reason or "it has ended")


def gone(session: StoredSession, why: str) -> SessionGoneError:
    """Return the error for a session that can never be streamed again."""
    return SessionGoneError(f"session {session.slot}: {why}; {_AGAIN}")


def _held(session: StoredSession, slot: Slot | None) -> SessionHeldError:
    if session.reader is not None and session.reader_since is not None:
        who = f"{session.reader} since {session.reader_since:%Y-%m-%d %H:%M:%S %Z}"
    else:
        who = f"pid {slot.active_pid if slot else '?'} at the source" + (
            f" ({slot.holder})" if slot and slot.holder else ""
        )
    return SessionHeldError(f"session {session.slot} is read by {who}")


def _require_whole(source: Connection, session: StoredSession, slot: Slot | None) -> int:
    """Return the position to stream from.

    Raises SessionGoneError if the slot does not hold everything from there on.
    """
    position = session.position or 0
    now = timeline.read_identity(source)
    if now.system_identifier != session.system_identifier:
        raise gone(session, "the source is another cluster than the one where it was made")
    if now.flushed < position:
        raise gone(session, f"the source was restored to a state that is older than {lsn.show(position)}")
    if slot is None:
        raise gone(session, "its slot was dropped at the source")
    if slot.plugin != "pgoutput" or slot.database != now.database or slot.two_phase:
        raise gone(session, "its slot was replaced by another one at the source")
    if slot.invalidated:
        raise gone(session, "the source has removed WAL that it still needed")
    if (slot.confirmed_lsn or 0) > position:
        raise gone(session, f"another program has moved its slot beyond {lsn.show(position)}")
    return position


def _require_nobody_waits(source: Connection, session: StoredSession) -> None:
    names = str(queries.value(source, "select current_setting('synchronous_standby_names')"))
    if synchronous_standbys.can_choose(names, walsender_name(session.slot)):
        raise StatementRefusedError(
            "synchronous_standby_names at the source would make commits there wait for this client"
        )


def _connect(dsn: str, what: str, limit: _Limit) -> Connection:
    connection = connections.connect(dsn, what, name="pipeline sessions", connect_timeout=CONNECT_SECONDS)
    limit.add(lambda: connections.hang_up(connection))
    return connection


class _Limit:
    """Ends connections to a database that does not answer in time."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._ends: list[Callable[[], None]] = []
        self._timer = threading.Timer(ANSWER_SECONDS, self._expire)
        self._timer.daemon = True
        self._expired = False

    def __enter__(self) -> _Limit:
        self._timer.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        self._timer.cancel()
        if isinstance(error, psycopg.Error | DatabaseUnavailableError) and self._expired:
            where = f"the source ({describe(self._config.source)}) or the pipeline database"
            raise DatabaseUnavailableError(f"{where} does not answer within {ANSWER_SECONDS:g} s") from error
        if isinstance(error, psycopg.Error) and not connections.is_ours(error):
            raise connections.unavailable(self._config.source, "source", error) from error

    def add(self, end: Callable[[], None]) -> None:
        self._ends.append(end)
        if self._expired:
            end()

    def lift(self) -> None:
        self._timer.cancel()

    def _expire(self) -> None:
        self._expired = True
        for end in list(self._ends):
            end()
