"""Connections to both databases, and the one place that turns errors of the driver into errors of the product."""

from __future__ import annotations

import os
import queue
import re
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow

from pipeline.config.settings import describe
from pipeline.errors import DatabaseUnavailableError, StatementRefusedError
from pipeline.postgres import open_sessions, session_settings

Connection = psycopg.Connection[TupleRow]
AsyncConnection = psycopg.AsyncConnection[TupleRow]
CONNECT_TIMEOUT = 10
"""Seconds to wait for a connection to be accepted."""
PROMPT_SECONDS = 3.0
"""Seconds that a command waits for a connection, so that the user learns within five that a database does not answer.

`connect_timeout` in the DSN takes precedence."""
GONE = (psycopg.OperationalError, psycopg.InterfaceError, psycopg.errors.IdleInTransactionSessionTimeout)
"""The errors that the driver raises when a connection is lost."""
_NOT_ANSWERING = ("08", "57P0", "25P03")
"""Beginnings of the SQLSTATE if there is no connection: shutdown, an administrator or a timeout may have ended it."""
_ROW_ERRORS = ("21", "22", "23", "27", "2F", "38", "39", "42", "44", "54", "P0")
"""SQLSTATE classes of errors in the data, and of constraints that the owner has added to the events table."""
_TOO_LARGE = "invalid memory alloc request size"
_REMEDIES = (
    (r"could not translate host name|failed to resolve host", "correct the host in {setting}"),
    (
        r"Connection refused|No such file or directory|timeout|timed out|no answer|No route",
        "start it, or correct {setting}",
    ),
    (r"password|authentication", "correct {login}"),
    (r'database ".*" does not exist', "create it, or correct {setting}"),
    (r'role ".*" does not exist', "create it, or correct {setting}"),
    (r"no pg_hba.conf entry", "allow it in that server's pg_hba.conf, or correct {setting}"),
    (r"permission denied for database", "grant connect on it to this user, or correct {setting}"),
    (r"definition of service|service file", "correct the service file (PGSERVICEFILE), or {setting}"),
    (r"No space left on device", "free some space on its disk"),
    (r"closed the connection|shutting down|starting up", "check that it runs, and see its log"),
    (r"too many clients|reserved for roles|connection slots", "end other connections, or raise max_connections there"),
)
"""The remedy for each reason that libpq or the server states if it opens no session."""
GRANT_AT_SOURCE = "let an administrator of the source run what `pipeline check --sql --roles USER,READER` prints"
_STATEMENT_REMEDIES = {
    ("source", "42501"): GRANT_AT_SOURCE,
    ("pipeline database", "42501"): "let its owner grant that to the user in PIPELINE_DATABASE_DSN",
    ("", "25006"): "name a server that can be written, or set default_transaction_read_only = off there",
    ("", "53100"): "free some space on its disk",
}
"""The remedy for a refused statement, by database and SQLSTATE; "" for any database."""


LIVENESS = {
    "connect_timeout": CONNECT_TIMEOUT,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
"""Parameters of libpq that limit how long a peer that has silently disappeared stays unnoticed.

Those in a DSN take precedence."""


def conninfo(dsn: str, **ours: str) -> str:
    """Return the DSN with the parameters `ours`, which replace its own, and with those of LIVENESS that it lacks."""
    given = conninfo_to_dict(dsn)
    liveness = {name: value for name, value in LIVENESS.items() if name not in {**given, **ours}}
    return make_conninfo(dsn, client_encoding="UTF8", **liveness, **ours)


def hang_up(connection: Connection | psycopg.AsyncConnection[TupleRow]) -> None:
    """End a connection that does not answer, from any thread. The thread that uses it gets an OperationalError."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)


def connect(dsn: str, what: str, *, name: str = "pipeline", **options: Any) -> Connection:
    """Open an autocommit connection with the application name `name` and the settings for this database's sessions.

    `what` is what messages call the database: "source", "pipeline database" or another text. Raises
    DatabaseUnavailableError with libpq's reason in one line.
    """
    options.setdefault("settings", session_settings.for_database(what))
    try:
        return connect_plainly(dsn, name=name, place=what, **options)
    except psycopg.OperationalError as error:
        raise unavailable(dsn, what, error) from error


def connect_promptly(dsn: str, what: str, *, name: str, seconds: float | None = None, **options: Any) -> Connection:
    """Connect as `connect` does, but raise DatabaseUnavailableError after `seconds`, by default PROMPT_SECONDS.

    libpq applies its limit to each address of each host, and not to the name server. So a thread connects; if it still
    waits at the end of the time, it is abandoned.
    """
    seconds = seconds or float(conninfo_to_dict(dsn).get("connect_timeout") or PROMPT_SECONDS)
    options.setdefault("connect_timeout", round(seconds) + 1)  # libpq's limit for each address, so ours ends first
    made: queue.SimpleQueue[Connection | BaseException] = queue.SimpleQueue()
    given_up = threading.Event()

    def make() -> None:
        try:
            made.put(connect(dsn, what, name=name, **options))
        except BaseException as error:
            made.put(error)
        if given_up.is_set():
            _close_unused(made)

    threading.Thread(target=make, name=f"connecting to {what}", daemon=True).start()
    try:
        found = made.get(timeout=seconds)
    except queue.Empty:
        given_up.set()
        _close_unused(made)
        raise unavailable(dsn, what, TimeoutError(f"no answer within {seconds:g} s")) from None
    if isinstance(found, BaseException):
        raise found
    return found


def _close_unused(made: queue.SimpleQueue[Connection | BaseException]) -> None:
    """Close a connection that was opened after nothing waited for it any longer."""
    with suppress(queue.Empty):
        found = made.get_nowait()
        if not isinstance(found, BaseException):
            found.close()


@contextmanager
def answering(
    dsn: str, what: str, seconds: float, *, name: str, for_command: bool = False, **options: Any
) -> Iterator[Connection]:
    """Open a connection for one check, as `connect` does, and limit the time of the check.

    Connecting and the work inside of the block may each take `seconds`; connecting may always take 2. After that,
    DatabaseUnavailableError is raised: a frozen server accepts connections, but never answers.

    `for_command`: connecting may take as long as `connect_promptly` allows a command.
    """
    limit = None if for_command else max(2.0, seconds)
    connection = connect_promptly(dsn, what, name=name, seconds=limit, **options)
    with limited(connection, dsn, what, seconds), connection:
        yield connection


@contextmanager
def limited(connection: Connection, dsn: str, what: str, seconds: float) -> Iterator[None]:
    """End the connection, and raise DatabaseUnavailableError, if the work inside of the block takes over `seconds`."""
    late = threading.Event()

    def end() -> None:
        late.set()
        hang_up(connection)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    except psycopg.Error as error:
        if late.is_set():
            raise DatabaseUnavailableError(f"{what} ({describe(dsn)}) does not answer within {seconds:g} s") from error
        raise
    finally:
        timer.cancel()


def server_version(connection: Connection) -> str:
    """Return the version of Postgres at the other end, such as 18.1."""
    return (connection.info.parameter_status("server_version") or "").split(" ")[0]


class _NamedConnection(psycopg.Connection[TupleRow]):
    """A connection whose errors name the database that refused a statement, in the attribute `place`."""

    place = ""

    def wait(self, *arguments: Any, **options: Any) -> Any:
        try:
            return super().wait(*arguments, **options)
        except psycopg.Error as error:
            error.__dict__.setdefault("place", self.place)
            raise


def connect_plainly(dsn: str, *, name: str, settings: Mapping[str, str], place: str = "", **options: Any) -> Connection:
    """Connect as `connect` does, with these settings. Raises psycopg's own errors, which `unavailable` explains."""
    connection = _NamedConnection.connect(conninfo(dsn, application_name=name), autocommit=True, **options)
    connection.place = place
    open_sessions.add(connection, dsn)
    try:
        connection.execute(session_settings.statement(settings).encode())
    except BaseException:
        connection.close()
        raise
    return connection


class _ClosingConnection(psycopg.AsyncConnection[TupleRow]):
    """A connection that the end of its `async with` always closes.

    psycopg's commits first, and stays open if it is cancelled meanwhile.
    """

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def connect_async(dsn: str, *, name: str, settings: Mapping[str, str], **options: Any) -> AsyncConnection:
    """Connect as `connect_plainly` does, for asyncio. Raises psycopg's own errors, which `unavailable` explains."""
    connection = await _ClosingConnection.connect(conninfo(dsn, application_name=name), autocommit=True, **options)
    open_sessions.add(connection, dsn)
    try:
        await connection.execute(session_settings.statement(settings).encode())
    except BaseException:
        await connection.close()
        raise
    return connection


def unavailable(
    dsn: str, what: str, error: BaseException, *, setting: str | None = None, login: str | None = None
) -> DatabaseUnavailableError:
    """Return the error for a database that refused or dropped a connection, or that refused a statement.

    The error's text tells these cases apart. For a database that no setting of the server names, `setting` says where
    the DSN is from, and `login` says where its user and password are.
    """
    cause = one_line(error)
    setting = setting or ("PIPELINE_SOURCE_DSN" if what == "source" else "PIPELINE_DATABASE_DSN")
    login = login or f"user and password in {setting}, PGPASSWORD or PGPASSFILE"
    if not is_gone(error):
        state = getattr(error, "sqlstate", "")
        remedy = _STATEMENT_REMEDIES.get((what, state)) or _STATEMENT_REMEDIES.get(("", state), "")
        refused = f"{what} ({describe(dsn)}) refused a statement: {cause} (SQLSTATE {state})"
        return StatementRefusedError(f"{refused}; {remedy}" if remedy else refused, what)
    remedy = next((remedy for pattern, remedy in _REMEDIES if re.search(pattern, cause)), "")
    remedy = remedy.format(setting=setting, login=login)
    return DatabaseUnavailableError(
        f"{what} ({describe(dsn)}) is not available: {cause}" + (f"; {remedy}" if remedy else "")
    )


def unavailable_one(
    source: Connection, source_dsn: str, database_dsn: str, error: psycopg.Error
) -> DatabaseUnavailableError:
    """Return the error for the one of two databases that failed: the source, if the connection `source` has ended.

    The error of a refused statement names its database, unless the connection was one for asyncio. Such a connection
    writes only to the pipeline database.
    """
    if not is_gone(error):
        place = getattr(error, "place", "") or "pipeline database"
        return unavailable(source_dsn if place == "source" else database_dsn, place, error)
    where, what = (source_dsn, "source") if source.broken else (database_dsn, "pipeline database")
    return unavailable(where, what, error)


def is_gone(error: BaseException) -> bool:
    """True if a database does not answer. The SQLSTATE decides; without one, the driver has lost its socket."""
    state = getattr(error, "sqlstate", None)
    return (
        state.startswith(_NOT_ANSWERING) if state else not isinstance(error, psycopg.Error) or isinstance(error, GONE)
    )


def is_ours(error: psycopg.Error) -> bool:
    """True if no server caused the error: it is a mistake in how our code uses the driver."""
    return error.sqlstate is None and not isinstance(error, GONE)


def one_line(error: BaseException) -> str:
    """Return the text of a driver's error without line breaks, context or contents of rows."""
    if isinstance(error, psycopg.Error) and error.diag.message_primary:
        return error.diag.message_primary
    return "; ".join(part.strip() for part in str(error).splitlines() if part.strip()) or type(error).__name__


def is_poison(error: psycopg.Error) -> bool:
    """True if the row or a constraint on it causes the error; after any other error, the next try may succeed."""
    state = error.sqlstate or ""
    return state.startswith(_ROW_ERRORS) or (state == "XX000" and _TOO_LARGE in str(error))


def cause_of(error: psycopg.Error) -> str:
    """Return the server's message without the values that it may quote."""
    text = one_line(error)
    return re.sub(r'"[^"]*"', '"…"', text) if (error.sqlstate or "").startswith("22") else text
