"""The client side of the fork server: asks it to fork, and keeps track of the forked processes."""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from types import TracebackType

from pipeline.errors import DatabaseUnavailableError
from pipeline.process.child import FROZEN_SECONDS, POLL, ChildProcess, ProcessHandle, be_as_program, program
from pipeline.process.child_errors import ChildErrors

_REAP_SECONDS = 1.0
"""Seconds to wait for a killed fork server, so that its CPU time is counted as the server's."""


class ForkServer(ChildProcess):
    """The fork server as the supervisor sees it. When it ends, its forks are killed: it can no longer report them."""

    def __init__(self, run: Callable[[], int], command: Sequence[str], errors: ChildErrors | None = None) -> None:
        """The first fork server is a fork of this process and calls `run`.

        Later ones execute `command`, since this process has threads by then.

        `errors`: standard error of the fork server and its forks, by default this process's.
        """
        super().__init__("fork server", self._fork_here, "")
        self._run = run
        self._errors = errors
        self._later = program(command, errors)
        self._forks = _Forks(self.read_ended)

    def __enter__(self) -> ForkServer:
        """Start the fork server, while this process has no threads and no connections; it logs nothing yet."""
        self._begin()
        self._launch = self._later
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill(_REAP_SECONDS)
        self.forget()

    def _fork_here(self, line: socket.socket) -> ProcessHandle:
        if (pid := os.fork()) == 0:
            if self._line is not None:
                self._line.close()
            take_as_standard_input(line.detach())
            if self._errors is not None:
                self._errors.redirect_stderr()
            be_as_program()
            sys.exit(self._run())
        return _Own(pid)

    @property
    def ready(self) -> bool:
        """True if the fork server has imported everything."""
        return self.process is not None and self._heard

    def fork(self, name: str, line: socket.socket) -> ProcessHandle | None:
        """Return a new process with this name and standard input; None if the fork server has ended or is frozen."""
        if self.process is None or self._line is None:
            return None
        process = self.process
        forked = self._forks.ask(self._line, name, line, lambda: self.lives)
        if forked is None:  # if it is forked after all, it finds its socket closed
            process.kill()
        return forked

    def read_ended(self) -> None:
        """Read which processes have ended."""
        lives = self.lives
        self._listen()
        if not lives:
            self._forks.orphan()

    def forget(self) -> None:
        self._forks.orphan()
        super().forget()

    def _receive(self, received: bytes) -> None:
        self._forks.receive(received)


class SiblingProcesses:
    """The fork server as a forked process sees it: forks processes that this one supervises, and that end with it."""

    def __init__(self, line: socket.socket) -> None:
        """`line`: the socket to the fork server."""
        line.setblocking(False)
        self._line = line
        self._gone = False
        self._forks = _Forks(self._read_ended)

    def fork(self, name: str, line: socket.socket) -> ProcessHandle | None:
        """Fork as ForkServer.fork does. If the fork server has ended, the supervisor will end this process, too.

        Raises DatabaseUnavailableError if it has not ended and does not answer; then this process should end.
        """
        if self._gone:
            return None
        forked = self._forks.ask(self._line, name, line, lambda: not self._gone)
        self._read_ended()
        if forked is None and not self._gone:  # a late answer would be mistaken for the answer to the next request
            raise DatabaseUnavailableError(f"no process for {name}: the fork server does not answer")
        return forked

    def _read_ended(self) -> None:
        try:
            while received := self._line.recv(1024):
                self._forks.receive(received)
        except BlockingIOError:
            return
        except ConnectionResetError:
            pass
        self._gone = True
        self._forks.orphan()


class _Forks:
    """The processes requested over one socket to the fork server."""

    def __init__(self, read_ended: Callable[[], None]) -> None:
        """`read_ended` reads what the fork server has sent, and calls `receive` with it."""
        self._read_ended = read_ended
        self._living: dict[int, ForkedProcess] = {}
        self._answer: ForkedProcess | None = None
        self._unfinished = b""

    def ask(
        self, line: socket.socket, name: str, standard_input: socket.socket, lives: Callable[[], bool]
    ) -> ForkedProcess | None:
        """Return the process once it is forked; None if the fork server ends first, or is silent for long."""
        self._answer = None
        give_up = time.monotonic() + FROZEN_SECONDS
        try:
            socket.send_fds(line, [name.encode() + b"\n"], [standard_input.fileno()])
            while self._answer is None and lives() and time.monotonic() < give_up:
                select.select([line], [], [], POLL)
                self._read_ended()
        except OSError:
            return None
        return self._answer

    def receive(self, received: bytes) -> None:
        *lines, self._unfinished = (self._unfinished + received).split(b"\n")
        for line in lines:
            match line.split():
                case [b"forked", pid]:
                    self._answer = self._living[int(pid)] = ForkedProcess(int(pid), self._read_ended)
                case [b"ended", pid, status]:
                    self._living.pop(int(pid)).status = int(status)

    def orphan(self) -> None:
        """Kill the forks of a fork server that has ended, since it can no longer report their end."""
        for forked in self._living.values():
            forked.status = -signal.SIGKILL
            _send(forked.pid, signal.SIGKILL)
        self._living.clear()
        self._unfinished = b""


class ForkedProcess:
    """A forked process. `read_ended` sets its `status` once it has ended."""

    def __init__(self, pid: int, read_ended: Callable[[], None]) -> None:
        self.pid = pid
        self.status: int | None = None
        self._read_ended = read_ended

    def poll(self) -> int | None:
        """Return the exit status, or minus the signal that killed it; None while it runs. It works like Popen.poll."""
        if self.status is None:
            self._read_ended()
        return self.status

    def send_signal(self, sig: int, /) -> None:
        if self.poll() is None:  # checked first: another process may soon have its pid
            _send(self.pid, sig)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _Own(ForkedProcess):
    """A process that this one has forked itself."""

    def __init__(self, pid: int) -> None:
        super().__init__(pid, self._reap)

    def _reap(self) -> None:
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid:
            self.status = os.waitstatus_to_exitcode(status)


def _send(pid: int, sig: int) -> None:
    try:
        os.kill(pid, sig)
    except ProcessLookupError:  # it has just ended
        return


def take_as_standard_input(number: int) -> None:
    """Replace this process's standard input by this file descriptor."""
    os.dup2(number, 0)
    if number != 0:  # it is 0 if the server was started without a standard input
        os.close(number)
