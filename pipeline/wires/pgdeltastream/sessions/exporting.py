"""The slot of a session, made over a replication connection that exports its snapshot and stays open with it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psycopg

from pipeline.capture.source import walsender
from pipeline.errors import PipelineError, SessionRefused, SlotExists, SourceUnfit
from pipeline.postgres import connections, session_settings, waits
from pipeline.postgres.connections import Connection
from pipeline.wal import lsn
from pipeline.wires.pgdeltastream.sessions.store import walsender_name

CANCEL_SECONDS = 5.0
"""How long the source has to end a statement that was cancelled, and to say what it waited for."""


@dataclass(frozen=True)
class Made:
    """A slot that streams what ends after `position`. `snapshot`: the name of what was visible there."""

    position: int
    snapshot: str


def connect(dsn: str, slot: str) -> Connection:
    """The connection that is to export. Raises Unavailable or SourceUnfit."""
    connection = walsender.connect(dsn, walsender_name(slot))
    try:
        connection.execute(session_settings.statement(session_settings.WALSENDER).encode())
    except psycopg.Error as error:
        connection.close()
        raise connections.unavailable(dsn, "source", error) from error
    return connection


def make(connection: Connection, dsn: str, slot: str, seconds: float) -> Made:
    """Make the slot; the snapshot lasts until the connection is used again or closed. Waits for running transactions.

    Raises SessionRefused after so many seconds, with whom it waited for; then, and after any other error, there is no
    slot. Raises SlotExists where somebody has taken the name.
    """
    command = f"CREATE_REPLICATION_SLOT \"{slot}\" LOGICAL pgoutput (SNAPSHOT 'export')"
    with _given_up(connection, dsn, seconds) as waited_for:
        try:
            row = connection.execute(command.encode()).fetchone()
        except psycopg.errors.DuplicateObject as error:
            raise SlotExists(f'slot "{slot}" exists already') from error
        except psycopg.errors.ConfigurationLimitExceeded as error:
            raise SourceUnfit(f"{connections.one_line(error)}; raise max_replication_slots at the source") from error
        except psycopg.Error as error:
            if waited_for:
                raise SessionRefused(
                    f"making a slot waited {seconds:g} s for {'; '.join(waited_for)}: it cannot begin while a "
                    "transaction that may have written is open; end that, and try again"
                ) from error
            raise connections.unavailable(dsn, "source", error) from error
    assert row is not None  # noqa: S101  the command's answer
    return Made(lsn.parse(row[1]), row[2])


@contextmanager
def _given_up(connection: Connection, dsn: str, seconds: float) -> Iterator[list[str]]:
    """Cancels what the connection waits for in the block after so many seconds; then the list says for whom it waited.

    No statement_timeout reaches a command of the replication protocol.
    """
    done, waited_for = threading.Event(), list[str]()

    def give_up() -> None:
        waited_for.extend(_holders(dsn, connection.info.backend_pid))
        with suppress(psycopg.Error):
            if not done.is_set():
                connection.cancel_safe(timeout=CANCEL_SECONDS)
        if not done.wait(CANCEL_SECONDS):
            connections.hang_up(connection)

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield waited_for
    finally:
        done.set()
        timer.cancel()


def _holders(dsn: str, pid: int) -> list[str]:
    try:
        with connections.answering(dsn, "source", CANCEL_SECONDS, name="pipeline session") as source:
            found = waits.look(source, [pid])
    except (PipelineError, psycopg.Error) as error:
        return [f"what cannot be told ({connections.one_line(error)})"]
    return [wait.held_by for wait in found] or ["what has ended by now"]
