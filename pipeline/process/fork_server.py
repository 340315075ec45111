"""What the fork server does: it forks whenever it is asked to, and tells who has ended."""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
from collections.abc import Callable
from contextlib import suppress

from pipeline.process.fork_client import Siblings, take_as_standard_input
from pipeline.process.signals import PULSE_SECONDS


def fork_on_request(load: Callable[[], None]) -> tuple[str, Siblings] | None:
    """Be the fork server: `load`, then fork. Returns in each forked process, with its name; None when the line ends.

    Stops by signal are for the others: those who stop a whole process group, or a control group, would stop us first.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    load()
    gc.collect()
    gc.freeze()  # what was imported is never looked at again, so that its pages stay shared
    woken, waker = socket.socketpair()
    waker.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    with woken, waker:
        try:
            return _Nursing(socket.socket(fileno=0), woken).run()
        finally:
            signal.set_wakeup_fd(-1)  # before it is closed: the roles end at the same moment as we do


class _Nursing:
    """What the fork server does all the time."""

    def __init__(self, supervisor: socket.socket, woken: socket.socket) -> None:
        self._supervisor = supervisor
        self._woken = woken
        self._lines = [supervisor]
        self._asked_by: dict[int, socket.socket] = {}

    def run(self) -> tuple[str, Siblings] | None:
        """What `fork_on_request` returns."""
        while True:
            with suppress(BlockingIOError):  # a frozen supervisor does not read
                _say(self._supervisor, b"\n", socket.MSG_DONTWAIT)
            ready, _, _ = select.select([self._woken, *self._lines], [], [], PULSE_SECONDS)
            for line in ready:
                if line is self._woken:
                    line.recv(1024)
                    continue
                said, files = _hear(line)
                if said and files and (siblings := self._forks(line, files[0])):
                    return said.decode().strip(), siblings
                if said:
                    continue
                if line is self._supervisor:
                    return None
                self._lines.remove(line)
                line.close()
            self._tell_ended()

    def _forks(self, line: socket.socket, standard_input: int) -> Siblings | None:
        """Something in the new process."""
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid:
            theirs.close()
            os.close(standard_input)
            self._lines.append(ours)
            self._asked_by[pid] = line
            _say(line, b"forked %d\n" % pid)
            return None
        for number in signal.SIGCHLD, signal.SIGTERM:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        self._supervisor.detach()  # its number is the new one's
        for other in (ours, *self._lines[1:]):
            other.close()
        take_as_standard_input(standard_input)
        return Siblings(theirs)

    def _tell_ended(self) -> None:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                _say(self._asked_by.pop(pid), b"ended %d %d\n" % (pid, os.waitstatus_to_exitcode(status)))


def _say(line: socket.socket, message: bytes, flags: int = 0) -> None:
    """To somebody who may be gone: the next look at its line finds that."""
    with suppress(BrokenPipeError, ConnectionResetError):
        if line.fileno() >= 0:
            line.sendall(message, flags)


def _hear(line: socket.socket) -> tuple[bytes, list[int]]:
    """What is said, and the files that come with it; nothing when who says it is gone."""
    try:
        said, files, _, _ = socket.recv_fds(line, 1024, 1)
    except ConnectionResetError:
        return b"", []
    return said, files
