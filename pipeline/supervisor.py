"""Child processes, one a role: started, restarted with backoff, drained in order. Knows nothing of what they do."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

logger = logging.getLogger(__name__)

RETRY = 75
"""Exit status of a child that wants to be started again (EX_TEMPFAIL of sysexits.h)."""
DRAIN_SECONDS = 30.0
"""All children together have so long to finish after SIGTERM."""
FROZEN_SECONDS, STARTING_SECONDS = 10.0, 60.0
"""A child that is not heard from for so long is killed and started again; one that was never heard is still loading."""
_FIRST_DELAY, _LONGEST_DELAY, _HEALTHY_AFTER = 0.25, 5.0, 2.0
POLL = 0.1
"""Seconds between two looks at a child."""


class Child:
    """One process. `process` is None while it does not run; then it may be started from `restart_at` on."""

    def __init__(self, role: str, command: Sequence[str], settings: str) -> None:
        """`role`: what log lines call it. `settings`: the first line of its standard input."""
        self.role = role
        self._command = command
        self._settings = settings
        self._delay = _FIRST_DELAY
        self._started_at = 0.0
        self.restart_at = 0.0
        self.retiring = False
        self._retire_by = 0.0
        self._line: socket.socket | None = None
        self._silent_looks = 0
        self._heard = False
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Run it; its standard input says what the settings are, and by ending that we are gone."""
        self._started_at = time.monotonic()
        self.retiring = False
        self._silent_looks = 0
        self._heard = False
        self._line, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(self._command, stdin=theirs.fileno(), env=_environment())
        with suppress(BrokenPipeError, ConnectionResetError):  # it is dead already, which the next look finds
            self._line.sendall(self._settings.encode() + b"\n")
        self._line.setblocking(False)
        logger.info("started", extra={"action": "serve.started", "child": self.role, "pid": self.process.pid})

    def retire(self) -> None:
        """Tell it to end, once; it is somebody else's turn. One that does not is killed."""
        if self.process is None:
            return
        if not self.retiring:
            self.retiring = True
            self._retire_by = time.monotonic() + DRAIN_SECONDS
            self.process.send_signal(signal.SIGTERM)
        elif time.monotonic() > self._retire_by:
            self.process.kill()

    def kill_if_frozen(self) -> None:
        """Call it every POLL; looks are counted, not seconds, since we may have been frozen with it."""
        if self.process is None or self._line is None:
            return
        with suppress(BlockingIOError, ConnectionResetError):
            while self._line.recv(1024):
                self._silent_looks = 0
                self._heard = True
        self._silent_looks += 1
        if self._silent_looks * POLL > (FROZEN_SECONDS if self._heard else STARTING_SECONDS):
            logger.error("%s is frozen; killed", self.role, extra={"action": "serve.frozen", "pid": self.process.pid})
            self._silent_looks = 0
            self.process.kill()

    def forget(self) -> None:
        """It has ended."""
        self.process = None
        if self._line is not None:
            self._line.close()

    def schedule_restart(self, reason: str) -> None:
        """Plan the next start; each failure in a row waits twice as long."""
        if time.monotonic() - self._started_at > _HEALTHY_AFTER:
            self._delay = _FIRST_DELAY
        self.forget()
        self.restart_at = time.monotonic() + self._delay
        logger.warning(
            "%s %s; starts again in %.2g s", self.role, reason, self._delay, extra={"action": "serve.restarts"}
        )
        self._delay = min(self._delay * 2, _LONGEST_DELAY)


def _environment() -> dict[str, str]:
    """Ours, but modules come from where ours came from, not from a folder that the server was started in."""
    here = str(Path(__file__).parents[1])
    paths = [here, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(paths)}


class Supervisor:
    """Runs one child per role until told to stop, or until one ends for good.

    `command` gives the program of a role; `settings` is written to its standard input as one line. `leads` is asked
    all the time: while it says no, only the roles of `always` run, and the others are told to end.
    """

    def __init__(
        self,
        roles: Sequence[str],
        command: Callable[[str], Sequence[str]],
        settings: str,
        *,
        leads: Callable[[], bool],
        always: Sequence[str] = (),
    ) -> None:
        self._children = [Child(role, command(role), settings) for role in roles]
        self._leads = leads
        self._always = always
        self._interrupts = 0
        self._stop = threading.Event()
        signal.signal(signal.SIGTERM, self._handle)
        signal.signal(signal.SIGINT, self._handle)

    def run(self) -> int:
        """Supervise until a signal, or until a child fails for good; drains, then returns the exit status."""
        status = 0
        while not self._stop.is_set():
            leading = self._leads()
            for child in self._children:
                if leading or child.role in self._always:
                    status = status or self._look_after(child)
                else:
                    child.retire()
            if status:
                break
            self._stop.wait(POLL)
        logger.info("draining", extra={"action": "serve.draining"})
        return self._drain() or status

    def _look_after(self, child: Child) -> int:
        if child.process is None:
            if time.monotonic() >= child.restart_at:
                child.start()
            return 0
        child.kill_if_frozen()
        code = child.process.poll()
        if code is None or self._stop.is_set():
            return 0
        if child.retiring:
            child.schedule_restart("is needed again")
            return 0
        if code in (0, RETRY) or code < 0:
            child.schedule_restart(f"was killed by signal {-code}" if code < 0 else "ended")
            return 0
        return code

    def _drain(self) -> int:
        """One after the other, in the order of the roles: what an earlier one leaves, a later one still moves."""
        deadline = time.monotonic() + DRAIN_SECONDS
        status = 0
        for child in self._children:
            if child.process is None:
                continue
            child.process.send_signal(signal.SIGTERM)
            while child.process.poll() is None and time.monotonic() < deadline and self._interrupts < 2:
                time.sleep(POLL / 2)
            if child.process.poll() is None:
                logger.warning("%s did not finish; killed", child.role, extra={"action": "serve.killed"})
                child.process.kill()
                child.process.wait()
                status = 1
        return status

    def _handle(self, number: int, _frame: object) -> None:
        if number == signal.SIGINT:
            self._interrupts += 1
        if self._interrupts == 1 and number == signal.SIGINT:
            sys.stderr.write("\nstopping; press Ctrl-C again to leave at once\n")
        self._stop.set()
