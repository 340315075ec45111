"""Runs one child process for each role: starts them, restarts them with backoff, and stops them in order."""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from pipeline.process import inherited
from pipeline.process.child import DRAIN_SECONDS, POLL, ChildProcess
from pipeline.process.fork_client import ForkServer

logger = logging.getLogger(__name__)

_LEAST_SECONDS = 1.0
"""Seconds that each child has to end, even if an earlier child has used up the common time."""
_KILLED_SECONDS = 2.0
"""Seconds to wait for a killed process. It ends at once, but the fork server, which reports that, may be frozen."""


class Supervisor:
    """Runs one child per role until asked to stop, or until one ends for good.

    `fork_server` forks them; `settings` is written to the standard input of each as one line. `leads` is called all
    the time: while it returns False, only the roles in `always` run, and the others are asked to end.
    """

    def __init__(
        self,
        roles: Sequence[str],
        fork_server: ForkServer,
        settings: str,
        *,
        leads: Callable[[], bool],
        always: Sequence[str] = (),
        at_once: Sequence[str] = (),
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        """Create a supervisor, which calls `beat` all the time, too.

        `at_once`: roles that are stopped without waiting for the end of those before them.
        """
        self._fork_server = fork_server
        self._children = [ChildProcess(role, partial(fork_server.fork, role), settings) for role in roles]
        self._leads = leads
        self._always = always
        self._at_once = at_once
        self._beat = beat
        self._interrupts = 0
        self._stop = threading.Event()
        signal.signal(signal.SIGTERM, self._handle)
        signal.signal(signal.SIGINT, self._handle)

    def run(self) -> int:
        """Supervise until a signal arrives or a child fails for good; then stop all and return the exit status."""
        status = 0
        while not self._stop.is_set():
            self._beat()
            leading = self._leads()
            status = self._supervise(self._fork_server)
            forker = self._fork_server.process
            inherited.collect([forker.pid] if forker is not None else [])
            for child in self._children:
                if leading or child.role in self._always:
                    status = status or self._supervise(child)
                else:
                    child.retire()
            if status:
                break
            self._stop.wait(POLL)
        logger.info("draining", extra={"action": "serve.draining"})
        return self._drain() or status

    def _supervise(self, child: ChildProcess) -> int:
        if child.process is None:
            if time.monotonic() >= child.restart_at and (child is self._fork_server or self._fork_server.ready):
                child.start()
            return 0
        code = child.ended()
        if code is None or self._stop.is_set():
            return 0
        return 0 if child.start_again(code) else code

    def _drain(self) -> int:
        """Stop the children one by one, in the order of the roles: a later one processes what an earlier one left."""
        deadline = time.monotonic() + DRAIN_SECONDS
        status = 0
        for child in self._children:
            if child.role in self._at_once:
                child.retire()
        for child in self._children:
            child.retire()
            until = max(deadline, time.monotonic() + _LEAST_SECONDS)
            while child.lives and time.monotonic() < until and self._interrupts < 2:
                time.sleep(POLL / 2)
            if child.lives:
                logger.warning("%s did not finish; killed", child.role, extra={"action": "serve.killed"})
                child.kill(_KILLED_SECONDS)
                status = 1
        return status

    def _handle(self, number: int, _frame: object) -> None:
        if number == signal.SIGINT:
            self._interrupts += 1
        if self._interrupts == 1 and number == signal.SIGINT:
            sys.stderr.write("\nstopping; press Ctrl-C again to stop at once\n")
        self._stop.set()
