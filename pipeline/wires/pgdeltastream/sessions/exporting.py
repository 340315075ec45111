"""Creates the slot of a session over a replication connection, which exports the snapshot as long as it stays open."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psycopg

from pipeline.capture.source import slots, walsender
from pipeline.errors import PipelineError, SessionRefusedError, SlotExistsError, SourceUnfitError
from pipeline.postgres import connections, session_settings, waits
from pipeline.postgres.connections import Connection
from pipeline.wal import lsn
from pipeline.wires.pgdeltastream.sessions.store import walsender_name

CANCEL_SECONDS = 5.0
"""How long the source may take to end a cancelled statement, and to report what the statement waited for."""


@dataclass(frozen=True)
class CreatedSlot:
    """A slot that streams what ends after `position`. `snapshot`: the name of the snapshot at that position."""

    position: int
    snapshot: str


def connect(dsn: str, slot: str) -> Connection:
    """Return a replication connection for creating a slot. Raises DatabaseUnavailableError or SourceUnfitError."""
    connection = walsender.connect(dsn, walsender_name(slot))
    try:
        connection.execute(session_settings.statement(session_settings.WALSENDER).encode())
    except psycopg.Error as error:
        connection.close()
        raise connections.unavailable(dsn, "source", error) from error
    return connection


def make(connection: Connection, dsn: str, slot: str, seconds: float) -> CreatedSlot:
    """Create the slot; its snapshot lasts until the connection is used again or closed. Waits for running transactions.

    Raises SessionRefusedError after `seconds`, with the transactions that it waited for. Raises SlotExistsError if the
    name is taken. After any error the slot does not exist.
    """
    failover = ", FAILOVER" if connection.info.server_version >= slots.FAILOVER_SINCE else ""
    command = f"CREATE_REPLICATION_SLOT \"{slot}\" LOGICAL pgoutput (SNAPSHOT 'export'{failover})"
    with _given_up(connection, dsn, seconds) as waited_for:
        try:
            row = connection.execute(command.encode()).fetchone()
        except psycopg.errors.DuplicateObject as error:
            raise SlotExistsError(f'slot "{slot}" exists already') from error
        except psycopg.errors.ConfigurationLimitExceeded as error:
            raise SourceUnfitError(
                f"{connections.one_line(error)}; raise max_replication_slots at the source"
            ) from error
        except psycopg.Error as error:
            if waited_for:
                raise SessionRefusedError(
                    f"making a slot waited {seconds:g} s for {'; '.join(waited_for)}: it cannot begin while a "
                    "transaction that may have written is open; end that, and try again"
                ) from error
            raise connections.unavailable(dsn, "source", error) from error
    assert row is not None  # noqa: S101  the command's answer
    return CreatedSlot(lsn.parse(row[1]), row[2])


@contextmanager
def _given_up(connection: Connection, dsn: str, seconds: float) -> Iterator[list[str]]:
    """Cancel the statement of the block after `seconds`, and add the transactions that it waited for to the list.

    statement_timeout does not apply to commands of the replication protocol.
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
            waiting = waits.find_waits(source, [pid])
    except (PipelineError, psycopg.Error) as error:
        return [f"an unknown transaction ({connections.one_line(error)})"]
    return [wait.held_by for wait in waiting] or ["a transaction that has ended since"]
