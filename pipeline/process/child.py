"""Start a child process, read its signs of life, kill it if it is frozen, and restart it with backoff."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from pipeline.process import python_path
from pipeline.process.child_errors import ChildErrors

logger = logging.getLogger(__name__)

RETRY = 75
"""Exit status of a child that asks to be started again (EX_TEMPFAIL of sysexits.h)."""
DRAIN_SECONDS = 30.0
"""Seconds that all children together have to finish after SIGTERM."""
FROZEN_SECONDS, STARTING_SECONDS = 10.0, 60.0
"""Seconds of silence after which a child is killed and restarted: after its first sign of life, and before that."""
_FIRST_DELAY, _LONGEST_DELAY, _HEALTHY_AFTER = 0.25, 5.0, 2.0
POLL = 0.1
"""Seconds between two checks of a child."""
_HERE = Path(__file__).parents[2]


class ProcessHandle(Protocol):
    """The methods of a process that `ChildProcess` needs; a Popen has them."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def send_signal(self, sig: int, /) -> None: ...
    def kill(self) -> None: ...


Launch = Callable[[socket.socket], ProcessHandle | None]
"""A function that starts a process with this socket as standard input; None if that is impossible now."""


def program(command: Sequence[str], errors: ChildErrors | None = None) -> Launch:
    """Return a Launch that runs this program; its standard error is `errors`, by default this process's."""

    taken = None if errors is None else errors.fileno()

    def launch(line: socket.socket) -> ProcessHandle:
        return subprocess.Popen(command, stdin=line.fileno(), stderr=taken, env=python_path.environment(_HERE))

    return launch


def be_as_program() -> None:
    """Prepare this process for forks: import the modules that a `program` would, and give children its environment."""
    os.environ.update(python_path.environment(_HERE))
    sys.path[0 : not sys.flags.safe_path] = [str(_HERE)]


class ChildProcess:
    """A child process. `process` is None while it does not run; it may be started again from `restart_at` on."""

    def __init__(
        self, role: str, launch: Launch, settings: str, attach: Callable[[], socket.socket] | None = None
    ) -> None:
        """`role`: its name in log lines.

        `settings`: the first line of its standard input. `attach`: makes a socket, at each start, that is sent with
        this line (`signals.read_settings_and_socket` receives it).
        """
        self.role = role
        self._launch = launch
        self._settings = settings
        self._attach = attach
        self._delay = _FIRST_DELAY
        self._started_at = 0.0
        self.restart_at = 0.0
        self.retiring = False
        self._retire_by = 0.0
        self._line: socket.socket | None = None
        self._silent_looks = 0
        self._heard = False
        self.process: ProcessHandle | None = None

    def start(self) -> None:
        """Start the process. Its standard input carries the settings, and ends when this process does."""
        self._begin()
        if self.process is not None:
            pid = self.process.pid
            logger.info("started", extra={"action": "serve.started", "child": self.role, "pid": pid})

    def _begin(self) -> None:
        self._started_at = time.monotonic()
        self.retiring = False
        self._silent_looks = 0
        self._heard = False
        self._line, theirs = socket.socketpair()
        with theirs:
            self.process = self._launch(theirs)
        if self.process is None:
            self.forget()
            return
        with suppress(BrokenPipeError, ConnectionResetError):  # the process has died already; the next check finds that
            self._send(self._line, self._settings.encode() + b"\n")
        self._line.setblocking(False)

    def _send(self, line: socket.socket, settings: bytes) -> None:
        if self._attach is not None:
            with self._attach() as attached:
                settings = settings[socket.send_fds(line, [settings], [attached.fileno()]) :]
        line.sendall(settings)

    @property
    def lives(self) -> bool:
        """True while the process runs."""
        return self.process is not None and self.process.poll() is None

    def retire(self, seconds: float = DRAIN_SECONDS) -> None:
        """Ask the process to end, once. A later call kills it if it still runs after `seconds`."""
        if self.process is None:
            return
        if not self.retiring:
            self.retiring = True
            self._retire_by = time.monotonic() + seconds
            self.process.send_signal(signal.SIGTERM)
        elif time.monotonic() > self._retire_by:
            self.process.kill()

    def kill(self, seconds: float) -> None:
        """Kill the process, and wait until it has ended, at most `seconds`."""
        if self.process is None:
            return
        self.process.kill()
        give_up = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < give_up:
            time.sleep(POLL / 100)

    def ended(self) -> int | None:
        """Return the exit status once the process has ended, below 0 for a signal. Kills a frozen process.

        Call this every POLL: it counts calls instead of seconds, since this process may have been frozen, too.
        """
        if self.process is None:
            return None
        self._listen()
        self._silent_looks += 1
        if self._silent_looks * POLL > (FROZEN_SECONDS if self._heard else STARTING_SECONDS):
            logger.error("%s is frozen; killed", self.role, extra={"action": "serve.frozen", "pid": self.process.pid})
            self._silent_looks = 0
            self.process.kill()
        return self.process.poll()

    def _listen(self) -> None:
        """Read the bytes that the process has sent since the last call."""
        if self._line is None:
            return
        with suppress(BlockingIOError, ConnectionResetError):
            while received := self._line.recv(1024):
                self._silent_looks = 0
                self._heard = True
                self._receive(received)

    def _receive(self, received: bytes) -> None:
        """Handle received bytes: each is a sign of life, and most children send nothing else."""

    def forget(self) -> None:
        """Close the socket of a process that has ended."""
        self.process = None
        if self._line is not None:
            self._line.close()

    def start_again(self, code: int) -> bool:
        """Plan the next start of a process that ended with this status. Each failure in a row doubles the delay.

        Returns False, and plans nothing, if the process has ended for good.
        """
        if code > 0 and code != RETRY and not self.retiring:
            return False
        reason = f"was killed by signal {-code}" if code < 0 else "ended"
        if self.retiring:
            reason = "is needed again"
        if time.monotonic() - self._started_at > _HEALTHY_AFTER:
            self._delay = _FIRST_DELAY
        self.forget()
        self.restart_at = time.monotonic() + self._delay
        logger.warning(
            "%s %s; starts again in %.2g s", self.role, reason, self._delay, extra={"action": "serve.restarts"}
        )
        self._delay = min(self._delay * 2, _LONGEST_DELAY)
        return True
