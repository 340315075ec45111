"""The process that forks the others, and how it is asked to: what is imported once need not be imported by each.

It runs nothing but this, so it has no threads and no connections, which would not survive a fork. Its standard input
is its line to the supervisor. A request is a name, and with it the socket that becomes the new process's standard
input. What it answers: `forked PID` to each request, `ended PID STATUS` when a child has, an empty line to say that it
lives. It ends with its line; the processes that it forked have lines of their own.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType

from pipeline.child import FROZEN_SECONDS, POLL, Child, Process, be_as_program, program
from pipeline.loop import PULSE_SECONDS

_REAP_SECONDS = 1.0
"""So long is it waited for once it was killed, so that what it has used is counted as the server's."""


class Nursery(Child):
    """The supervisor's end. When the nursery ends, whatever it has forked is killed: nobody would tell of its end."""

    def __init__(self, run: Callable[[], int], command: Sequence[str]) -> None:
        """The first is a fork of this process that runs `run`; later ones, when we have threads, run `command`."""
        super().__init__("nursery", self._fork_here, "")
        self._run = run
        self._later = program(command)
        self._forked: dict[int, Forked] = {}
        self._answer: Forked | None = None
        self._unfinished = b""

    def __enter__(self) -> Nursery:
        """Begin it, while this process has no threads and no connections; nothing is logged of a server yet."""
        self._begin()
        self._launch = self._later
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.process is not None:
            self.process.kill()
            give_up = time.monotonic() + _REAP_SECONDS
            while self.process.poll() is None and time.monotonic() < give_up:
                time.sleep(0.001)
            self.forget()

    def _fork_here(self, line: socket.socket) -> Process:
        if (pid := os.fork()) == 0:
            if self._line is not None:
                self._line.close()
            _take_as_standard_input(line.detach())
            be_as_program()
            sys.exit(self._run())
        return _Own(pid)

    @property
    def ready(self) -> bool:
        """Whether it has imported everything."""
        return self.process is not None and self._heard

    def fork(self, name: str, line: socket.socket) -> Process | None:
        """A new process with this standard input, that is to be `name`; None when the nursery is gone, or frozen."""
        if self.process is None or self._line is None:
            return None
        self._answer = None
        give_up = time.monotonic() + FROZEN_SECONDS
        try:
            socket.send_fds(self._line, [name.encode() + b"\n"], [line.fileno()])
            while self._answer is None and self.process.poll() is None and time.monotonic() < give_up:
                select.select([self._line], [], [], POLL)
                self._listen()
        except OSError:
            return None
        if self._answer is None:  # should it be forked after all, it finds that its line has ended
            self.process.kill()
        return self._answer

    def look(self) -> None:
        """Learn which processes have ended."""
        gone = self.process is None or self.process.poll() is not None
        self._listen()
        if gone:
            self._orphan()

    def forget(self) -> None:
        self._orphan()
        self._unfinished = b""
        super().forget()

    def _orphan(self) -> None:
        for forked in self._forked.values():
            forked.status = -signal.SIGKILL
            _send(forked.pid, signal.SIGKILL)
        self._forked.clear()

    def _hears(self, said: bytes) -> None:
        *lines, self._unfinished = (self._unfinished + said).split(b"\n")
        for line in lines:
            match line.split():
                case [b"forked", pid]:
                    self._answer = self._forked[int(pid)] = Forked(int(pid), self)
                case [b"ended", pid, status]:
                    self._forked.pop(int(pid)).status = int(status)


class Forked:
    """A process that the nursery has forked."""

    def __init__(self, pid: int, nursery: Nursery) -> None:
        self.pid = pid
        self.status: int | None = None
        self._nursery = nursery

    def poll(self) -> int | None:
        """As of a Popen: minus the signal that killed it."""
        if self.status is None:
            self._nursery.look()
        return self.status

    def send_signal(self, sig: int, /) -> None:
        if self.poll() is None:  # asked first: another process may have its number soon
            _send(self.pid, sig)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _Own:
    """A process that was forked here."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._status: int | None = None

    def poll(self) -> int | None:
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._status = os.waitstatus_to_exitcode(status) if pid else None
        return self._status

    def send_signal(self, sig: int, /) -> None:
        if self.poll() is None:
            _send(self.pid, sig)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _send(pid: int, sig: int) -> None:
    try:
        os.kill(pid, sig)
    except ProcessLookupError:  # it has just ended
        return


def fork_on_request(load: Callable[[], None]) -> str | None:
    """Be the nursery: `load`, then fork. Returns in each forked process, with its name; None when the line ends.

    Stops by signal are for the others: those who stop a whole process group, or a control group, would stop us first.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    load()
    gc.collect()
    gc.freeze()  # what was imported is never looked at again, so that its pages stay shared
    line = socket.socket(fileno=0)
    woken, waker = socket.socketpair()
    waker.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    with woken, waker, suppress(BrokenPipeError, ConnectionResetError):  # the supervisor is gone
        return _forked_child(line, woken)
    return None


def _forked_child(line: socket.socket, woken: socket.socket) -> str | None:
    """Fork whenever asked, and tell who has ended; what `fork_on_request` returns."""
    while True:
        line.send(b"\n")
        ready, _, _ = select.select([line, woken], [], [], PULSE_SECONDS)
        if woken in ready:
            woken.recv(1024)
        if line in ready:
            said, files, _, _ = socket.recv_fds(line, 1024, 1)
            if not said:
                return None
            if files and _forks(line, files[0]):
                return said.decode().strip()
        _tell_ended(line)


def _forks(line: socket.socket, standard_input: int) -> bool:
    """True in the new process."""
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        for number in signal.SIGCHLD, signal.SIGTERM:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        line.detach()  # its number is the new one's
        _take_as_standard_input(standard_input)
        return True
    os.close(standard_input)
    line.sendall(b"forked %d\n" % pid)
    return False


def _take_as_standard_input(number: int) -> None:
    os.dup2(number, 0)
    if number != 0:  # as it is where the server was started with none
        os.close(number)


def _tell_ended(line: socket.socket) -> None:
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            line.sendall(b"ended %d %d\n" % (ended[0], os.waitstatus_to_exitcode(ended[1])))
