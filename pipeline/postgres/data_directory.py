"""The data directory of the embedded Postgres: its user, its initdb, and the start of its postmaster."""

from __future__ import annotations

import os
import re
import shutil
import time
from contextlib import suppress
from pathlib import Path

from pipeline.errors import EmbeddedPostgresError
from pipeline.postgres.run_as import ProgramUser, identities

START_TIMEOUT = 120
"""Seconds for a start, crash recovery included."""
LEAVE_TIMEOUT = 20
"""Seconds that the server waits for the processes of a killed server to end."""
_CANNOT_ENTER = 3
_PROBE = f'cd "$1" 2>/dev/null || exit {_CANNOT_ENTER}; exec "$2" --version'
_LEAVING = re.compile(r"pre-existing shared memory|lock file .* already exists")
_DEAD_PID = 2**31 - 1

_REMEDIES = {
    "No space left": "free some space, or set PIPELINE_DATA_DIR to a folder on another disk",
    "Disk quota": "free some space, or set PIPELINE_DATA_DIR to a folder on another disk",
    "shared memory": "end other servers, or give this machine or container more shared memory (Docker: --shm-size)",
    "Cannot allocate memory": "give this machine or container more memory",
    "could not create any TCP/IP sockets": "choose another port, or end the program that listens there",
    "could not look up effective user": "add this user to /etc/passwd, or set the two DSNs to your own servers",
    "Permission denied": "set PIPELINE_DATA_DIR to a folder of the user who starts the server",
}


class DataDirectory:
    """The cluster `directory`/data, run by the binaries in `bin_dir`, with its log in `directory`/postgres.log."""

    def __init__(self, directory: Path, bin_dir: Path) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.log = directory / "postgres.log"
        self._bin_dir = bin_dir

    def identity(self) -> tuple[ProgramUser, int]:
        """Return the first user who can enter the directory's parent and run the binaries, and the major version."""
        parent, postgres, refusals = self.directory.parent, self._bin_dir / "postgres", []
        for identity in identities(self.data if self.data.exists() else self.directory):
            try:
                probe = identity.run("/bin/sh", "-c", _PROBE, "sh", parent, postgres, cwd=Path("/"))
            except OSError as error:
                refusals.append(f"{identity.name}: {error.strerror}")
                continue
            if version := re.search(r"\(PostgreSQL\) (\d+)", probe.stdout):
                return identity, int(version[1])
            denied = probe.returncode == _CANNOT_ENTER
            reason = f"cannot enter {parent}" if denied else f"cannot run {postgres}: {decisive(probe.stderr)}"
            refusals.append(f"{identity.name} {reason}")
        raise EmbeddedPostgresError(
            f"the embedded Postgres cannot run in {self.directory} ({'; '.join(refusals)}): start as an ordinary user, "
            "or set PIPELINE_DATA_DIR to a folder, with the server installed in another, that such a user may enter"
        )

    def require_version(self, major: int) -> None:
        """Raise EmbeddedPostgresError if another major version made the cluster."""
        try:
            found = (self.data / "PG_VERSION").read_text().strip()
        except FileNotFoundError:
            return
        if found != str(major):
            raise EmbeddedPostgresError(
                f"{self.data} holds data of PostgreSQL {found}, and this is PostgreSQL {major}: move the folder away, "
                f"or dump it with a PostgreSQL {found} and restore the dump"
            )

    def initdb(self, identity: ProgramUser, major: int, *, sync: bool) -> None:
        """Create the cluster in another folder, then move it: an incomplete one, after a crash, is never started."""
        if self.data.exists() and any(self.data.iterdir()):
            raise EmbeddedPostgresError(f"{self.data} is not a folder of Postgres (no PG_VERSION): move it away")
        new = self.data.with_name("data.new")
        shutil.rmtree(new, ignore_errors=True)
        identity.own(self.directory)
        options = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"]
        if major >= 17:
            options += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        if not sync:
            options.append("--no-sync")
        done = identity.run(self._bin_dir / "initdb", "-D", new.name, *options, cwd=self.directory)
        try:
            if done.returncode:
                raise self.failure(f"cannot be set up in {self.directory}", decisive(done.stderr))
            with (new / "postgresql.conf").open("a") as file:
                file.write("\ninclude_if_exists 'pipeline.conf'  # written at every start\n")
            new.rename(self.data)
        finally:
            shutil.rmtree(new, ignore_errors=True)

    def launch(self, identity: ProgramUser, socket: Path) -> None:
        """Start the postmaster and wait until it accepts connections on `socket`."""
        deadline = time.monotonic() + LEAVE_TIMEOUT
        while True:
            self._disown_pids(socket)
            seen = self.log.stat().st_size if self.log.exists() else 0
            # Names relative to the folder: pg_ctl passes them to a shell, and a path may have any character.
            done = identity.run(
                self._bin_dir / "pg_ctl", "start", "-D", "data", "-l", self.log.name, "-w", "-t", START_TIMEOUT,
                cwd=self.directory,
            )  # fmt: skip
            if not done.returncode:
                return
            reason = decisive(self._log_after(seen)) or decisive(done.stderr)
            if not _LEAVING.search(reason) or time.monotonic() > deadline:
                raise self.failure(f"does not start in {self.directory}", reason)
            time.sleep(0.2)  # the killed server's processes are still ending

    def _disown_pids(self, socket: Path) -> None:
        """Replace a pid in leftover lock files if it now belongs to another program or to a zombie.

        With that pid Postgres would not start. The other lines stay: by them Postgres checks that no orphaned process
        of the old server still writes.
        """
        for file in (self.data / "postmaster.pid", socket.with_name(socket.name + ".lock")):
            with suppress(FileNotFoundError, ValueError):
                pid, _, rest = file.read_text().partition("\n")
                if _is_another_program(int(pid), self.data):
                    file.write_text(f"{_DEAD_PID}\n{rest}")

    def _log_after(self, offset: int) -> str:
        try:
            return self.log.read_bytes()[offset:].decode(errors="replace")
        except FileNotFoundError:
            return ""

    def failure(self, what: str, reason: str) -> EmbeddedPostgresError:
        """Return the error that names what failed, the reason, and the remedy."""
        known = (remedy for text, remedy in _REMEDIES.items() if text in reason)
        return EmbeddedPostgresError(f"the embedded Postgres {what}: {reason}; {next(known, self._general_remedy())}")

    def _general_remedy(self) -> str:
        return f"see {self.log}" if self.log.exists() else "set PIPELINE_DATA_DIR to a folder that can be written"


def _is_another_program(pid: int, data: Path) -> bool:
    """True if `pid` runs and is certainly not the postmaster of `data`. Without /proc this is never certain."""
    process = Path(f"/proc/{pid}")
    try:
        program = os.path.basename((process / "cmdline").read_bytes().split(b"\0")[0])
        return program not in (b"postgres", b"postmaster") or not os.path.samefile(process / "cwd", data)
    except OSError:
        return False


def decisive(output: str) -> str:
    """Return the line of the output that has the reason: the last error, else the last line, without time and pid."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"\b(PANIC|FATAL|ERROR|error):", line)]
    line = (errors or lines or [""])[-1]
    return re.sub(r"^.*?\b(PANIC|FATAL|ERROR|error): +", "", line)
