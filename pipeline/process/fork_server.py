"""The fork server: forks on request, and reports which of the forked processes have ended."""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
from collections.abc import Callable
from contextlib import suppress

from pipeline.process.fork_client import SiblingProcesses, take_as_standard_input
from pipeline.process.signals import PULSE_SECONDS


def fork_on_request(load: Callable[[], None]) -> tuple[str, SiblingProcesses] | None:
    """Run the fork server: call `load`, then fork on request.

    Returns several times: in each forked process the name of this process, and in the fork server None, once the
    supervisor's socket is closed.

    SIGINT and SIGTERM are ignored: if they are sent to a whole process group, they would end this process first.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    gc.disable()  # imported modules are no garbage, and a collection would take a tenth of the time
    load()
    gc.collect()
    gc.freeze()  # the collector never touches what was imported, so that its pages stay shared
    gc.enable()
    woken, waker = socket.socketpair()
    waker.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    with woken, waker:
        try:
            return _Forking(socket.socket(fileno=0), woken).run()
        finally:
            signal.set_wakeup_fd(-1)  # before it is closed: the roles end at the same moment as this process


class _Forking:
    """The loop of the fork server."""

    def __init__(self, supervisor: socket.socket, woken: socket.socket) -> None:
        self._supervisor = supervisor
        self._woken = woken
        self._lines = [supervisor]
        self._requested_by: dict[int, socket.socket] = {}

    def run(self) -> tuple[str, SiblingProcesses] | None:
        """Run the loop; returns like `fork_on_request`."""
        while True:
            with suppress(BlockingIOError):  # a frozen supervisor does not read
                _send(self._supervisor, b"\n", socket.MSG_DONTWAIT)
            ready, _, _ = select.select([self._woken, *self._lines], [], [], PULSE_SECONDS)
            for line in ready:
                if line is self._woken:
                    line.recv(1024)
                    continue
                received, files = _receive(line)
                if received and files and (siblings := self._fork(line, files[0])):
                    return received.decode().strip(), siblings
                if received:
                    continue
                if line is self._supervisor:
                    return None
                self._lines.remove(line)
                line.close()
            self._report_ended()

    def _fork(self, line: socket.socket, standard_input: int) -> SiblingProcesses | None:
        """Fork. Returns SiblingProcesses in the new process, and None in this one."""
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid:
            theirs.close()
            os.close(standard_input)
            self._lines.append(ours)
            self._requested_by[pid] = line
            _send(line, b"forked %d\n" % pid)
            return None
        for number in signal.SIGCHLD, signal.SIGTERM:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        self._supervisor.detach()  # its descriptor becomes the new standard input
        for other in (ours, *self._lines[1:]):
            other.close()
        take_as_standard_input(standard_input)
        return SiblingProcesses(theirs)

    def _report_ended(self) -> None:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                _send(self._requested_by.pop(pid), b"ended %d %d\n" % (pid, os.waitstatus_to_exitcode(status)))


def _send(line: socket.socket, message: bytes, flags: int = 0) -> None:
    """Send to a process that may have ended; the next read of its socket finds that."""
    with suppress(BrokenPipeError, ConnectionResetError):
        if line.fileno() >= 0:
            line.sendall(message, flags)


def _receive(line: socket.socket) -> tuple[bytes, list[int]]:
    """Return the received bytes, and the files sent with them; no bytes if the other side has ended."""
    try:
        received, files, _, _ = socket.recv_fds(line, 1024, 1)
    except ConnectionResetError:
        return b"", []
    return received, files
