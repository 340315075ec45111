"""The replication connection: the only code that uses its socket.

Source: the Postgres manual, "Streaming Replication Protocol".
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence

from psycopg import OperationalError, pq

from pipeline.capture.replication import source_errors
from pipeline.capture.replication.socket_watch import SocketWatch
from pipeline.capture.replication.wait_timer import WaitTimer
from pipeline.capture.source import walsender
from pipeline.capture.source.walsender import SystemIdentity
from pipeline.errors import PublicationMissingError
from pipeline.postgres import connections, session_settings
from pipeline.wal import lsn, pgoutput

logger = logging.getLogger(__name__)

PROTOCOL_OPTIONS = {"proto_version": "1", "messages": "true"}
"""Options of pgoutput on which commit_idx depends, besides the publications: change them only deliberately."""

SENDER_TIMEOUT = 60
"""wal_sender_timeout of our connection in seconds; a source that is silent 1.5 times as long counts as unavailable."""
REQUEST_REPLY_SECONDS = 20
"""Seconds of silence after which a reply is requested: the walsender of a source that writes no WAL sends nothing."""
GATHER_SECONDS = 0.003
"""Seconds to wait for more messages if they arrive faster than this: waking up for each would cost more."""
NO_LIMIT = 1 << 62
_EPOCH_2000 = 946_684_800
_COPY_BOTH = pq.ExecStatus.COPY_BOTH


class ReplicationStream:
    """One walsender's stream. Construct it, `identify`, `start`, then `read` until that raises; always `close`.

    Everything before `join_loop` may run in a thread, one thread at a time.
    """

    def __init__(
        self,
        dsn: str,
        name: str,
        settings: Mapping[str, str] = session_settings.WALSENDER,
        *,
        gather: float = GATHER_SECONDS,
        timeout: int | None = None,
    ) -> None:
        """Connect. `name`: the application_name, which tells the source whose connection it is.

        `settings`: of the session; `timeout`: seconds within which the source must accept the connection, if not the
        usual ones; `gather`: seconds to wait for more messages if they arrive faster than that. Raises
        DatabaseUnavailableError, or SourceUnfitError if the source refuses replication connections.
        """
        self._dsn = dsn
        self._gather = gather
        self._session = walsender.connect(dsn, name, timeout)
        self._connection = self._session.pgconn
        self._connection.notice_handler = self._notice
        self._socket = SocketWatch()
        self._skipped_publication: str | None = None
        self._received_at = time.monotonic()
        self._silence_limit = 1.5 * SENDER_TIMEOUT
        self._end: Exception | None = None
        self.starved = WaitTimer()
        """Adds up how long `read` has waited for the source."""
        self.start_position = 0
        """The position that was passed to `start`."""
        self.is_drained = True
        """True if everything received so far has been read."""
        settings = {**settings, "wal_sender_timeout": f"{SENDER_TIMEOUT}s"}
        try:
            self.query(session_settings.statement(settings))
        except BaseException:
            self._session.close()
            raise

    @property
    def encoding(self) -> str:
        """Postgres' name of the encoding of the source's database."""
        return (self._connection.parameter_status(b"server_encoding") or b"UTF8").decode()

    def identify(self) -> SystemIdentity:
        """Return the identity of the source's cluster and database."""
        result = self._command("IDENTIFY_SYSTEM")
        values = [(result.get_value(0, column) or b"").decode() for column in range(4)]
        return SystemIdentity(values[0], int(values[1]), lsn.parse(values[2]), values[3])

    def timeline_history(self, timeline: int) -> str:
        """Return the earlier timelines and where each ended, a line each; empty for the first timeline."""
        if timeline <= 1:
            return ""
        return (self._command(f"TIMELINE_HISTORY {timeline}").get_value(0, 1) or b"").decode()

    def query(self, command: str) -> list[str | None]:
        """Run an SQL statement; returns its first row, if it returns rows. Only before `start`.

        If the statement fails, temporary slots that were created on this connection no longer exist.
        """
        result = self._connection.exec_(command.encode())
        if result.status == pq.ExecStatus.COMMAND_OK:
            return []
        if result.status != pq.ExecStatus.TUPLES_OK:
            raise source_errors.refusal_error(result, self._dsn, self._connection.get_error_message())
        values = [result.get_value(0, column) for column in range(result.nfields)]
        return [None if value is None else value.decode() for value in values]

    def start(self, slot: str, position: int, publications: Sequence[str]) -> None:
        """Begin to stream, and read in the running event loop: `begin`, and `join_loop`."""
        self.begin(slot, position, publications)
        self.join_loop()

    def begin(self, slot: str, position: int, publications: Sequence[str]) -> None:
        """Begin to stream transactions that end after `position`; 0: after what the slot has confirmed.

        Raises a ReplicationError that says why streaming cannot begin; after a SlotInUseError it may be tried again.
        """
        self.start_position = position
        names = ",".join('"' + name.replace('"', '""') + '"' for name in publications)
        options = {**PROTOCOL_OPTIONS, "publication_names": names}
        settings = ", ".join(f"\"{name}\" '{value.replace(chr(39), chr(39) * 2)}'" for name, value in options.items())
        self._command(f'START_REPLICATION SLOT "{slot}" LOGICAL {lsn.show(position)} ({settings})', expect=_COPY_BOTH)
        self._connection.nonblocking = 1

    def join_loop(self) -> None:
        """Let `read` wait for the socket in the running event loop."""
        self._socket.set_socket(self._connection.socket)

    async def read(
        self, limit: int = 500, before_wait: Callable[[], None] = lambda: None, room: int = NO_LIMIT
    ) -> list[bytes]:
        """Return the next messages, at least one and at most `limit`, each with its type byte (`w` or `k`).

        Stops after the message with which they have `room` bytes or more. If no message has arrived, `before_wait` is
        called, and `read` waits.
        """
        gathered = time.monotonic() - self._received_at >= self._gather
        while not (messages := self._take_messages(limit, room)):
            before_wait()
            with self.starved:
                if gathered:
                    await self._socket.wait()
                else:
                    await asyncio.sleep(self._gather)
            gathered = True
        self._received_at = time.monotonic()
        return messages

    def require_alive(self) -> None:
        """Raises DatabaseUnavailableError if the source has been silent for so long that it must have ended."""
        if (silence := self.starved.now) > self._silence_limit:
            raise connections.unavailable(self._dsn, "source", OperationalError(f"silent for {silence:.0f} s"))

    def send_status(self, received: int, confirmed: int, staged: int = 0) -> None:
        """Report our progress to the source; never blocks. `confirmed` lets the source remove WAL before that LSN.

        The source shows the other two as write_lsn and replay_lsn in pg_stat_replication, and does not use them
        otherwise.
        """
        if self._end is not None:
            return
        clock = int((time.time() - _EPOCH_2000) * 1_000_000)
        try:
            written, ask = max(received, confirmed), self.starved.now > REQUEST_REPLY_SECONDS
            status = pgoutput.encode_status(written, confirmed, clock, applied=staged, ask=ask)
            self._connection.put_copy_data(status)
            self._connection.flush()
        except OperationalError as error:
            raise connections.unavailable(self._dsn, "source", error) from error

    def close(self) -> None:
        """Close the connection."""
        # Stop watching also a lost connection, or the loop would not watch the next socket with its number.
        try:
            self._socket.close()
        except RuntimeError:  # the event loop has ended: there is nothing to remove
            logger.debug("closed outside of the loop", extra={"action": "replication.closed"})
        self._session.close()

    def end(self, reason: Exception) -> None:
        """Let `read` return the messages that were received, and then raise the reason, also if it is waiting."""
        self._end = self._end or reason
        self._socket.wake()

    def hang_up(self) -> None:
        """Cut a connection that does not answer, from another thread; its user gets DatabaseUnavailableError."""
        connections.hang_up(self._session)

    def _take_messages(self, limit: int, room: int) -> list[bytes]:
        messages = self._received(limit, room) if self._end is None else []
        if self._skipped_publication:
            raise PublicationMissingError(self._skipped_publication)
        if self._end is not None and not messages:  # messages before the end still count
            raise self._end
        return messages

    def _received(self, limit: int, room: int) -> list[bytes]:
        messages: list[bytes] = []
        take = self._connection.get_copy_data
        has_polled = False
        self.is_drained = False
        try:
            while len(messages) < limit and room > 0:
                size, data = take(1)
                if size > 0:
                    messages.append(bytes(data))
                    room -= size
                    has_polled = False
                elif size < 0:
                    result, text = self._connection.get_result(), self._connection.get_error_message()
                    self._end = source_errors.ending_error(result, self._dsn, text)
                    break
                elif has_polled:
                    self.is_drained = True
                    break
                else:
                    self._connection.consume_input()
                    has_polled = True
        except OperationalError as error:
            raise connections.unavailable(self._dsn, "source", error) from error
        return messages

    def _command(self, command: str, expect: pq.ExecStatus = pq.ExecStatus.TUPLES_OK) -> pq.abc.PGresult:
        result = self._connection.exec_(command.encode())
        if result.status != expect:
            raise source_errors.refusal_error(result, self._dsn, self._connection.get_error_message())
        return result

    def _notice(self, result: pq.abc.PGresult) -> None:
        text = source_errors.message(result)
        logger.warning("notice from the source: %s", text, extra={"action": "replication.notice"})
        # 18 skips rows of a recreated publication, and only this notice says so (pgoutput.c, LoadPublications).
        if "skipped loading publication" in text:
            self._skipped_publication = (
                f"{text}: it did not exist at this point of the WAL, so the source leaves changes out; "
                f"{source_errors.NEW_SLOT}"
            )
