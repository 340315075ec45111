"""Types the commands of a page: terminals that keep their variables and folder, and programs that stay."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shlex
import signal
import struct
import subprocess
import termios
import threading
from contextlib import suppress
from pathlib import Path

STOP_TIMEOUT = 40
"""Seconds for a program that stays to end after Ctrl-C."""
LINES, COLUMNS = 50, 160


class RunningProgram:
    """A shell command whose output goes to a terminal."""

    def __init__(self, command: str, script: str, folder: Path, environment: dict[str, str], stdin: int) -> None:
        self.command = command
        self._master, screen = _open_terminal()
        self._printed = bytearray()
        try:
            self.process = subprocess.Popen(
                ["bash", "-c", script],
                cwd=folder,
                env=environment,
                stdin=stdin,
                stdout=screen,
                stderr=screen,
                start_new_session=True,
            )
        finally:
            os.close(screen)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def output(self) -> str:
        """Return all that it has printed, without lines that it has overwritten or erased."""
        text = re.sub(r"[^\n]*\r(?!\n)", "", self._printed.decode(errors="replace").replace("\r\n", "\n"))
        return re.sub(r"[^\n]*\n\x1b\[1A\x1b\[2K", "", text)

    def wait(self, timeout: float) -> int:
        """Wait until it ends, and return its exit status."""
        try:
            status = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            raise
        self._reader.join(1)  # a daemon may keep the terminal open
        return status

    def press_ctrl_c(self) -> str:
        """Stop it, and return what it prints after that."""
        before = len(self.output())
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGINT)
        self.wait(STOP_TIMEOUT)
        return self.output()[before:]

    def _read(self) -> None:
        with suppress(OSError):  # no process has the terminal any more
            while some := os.read(self._master, 1 << 16):
                self._printed += some
        os.close(self._master)


class TerminalSet:
    """Terminals in one folder. Each has its own variables; `environment` is what all begin with."""

    def __init__(self, folder: Path, environment: dict[str, str], state: Path) -> None:
        self.folder, self.environment = folder, environment
        self.name = "first"
        self.staying: list[RunningProgram] = []
        self._started_in = dict[RunningProgram, str]()
        self._state = state

    def run(self, command: str, typed: str | None = None, timeout: float = 120) -> tuple[int, str]:
        """Run the command until it ends; return its exit status and what it prints."""
        script = (
            f"{self._enter()}\n{command}\nstatus=$?\n"
            f'{{ export -p; printf "cd %q\\n" "$PWD"; }} > {self._file()}\nexit $status\n'
        )
        keyboard, stdin = _open_terminal() if typed is not None else (-1, subprocess.DEVNULL)
        try:
            program = RunningProgram(command, script, self.folder, self.environment, stdin)
            if typed is not None:
                os.write(keyboard, f"{typed}\n".encode())
            return program.wait(timeout), program.output()
        finally:
            if typed is not None:
                os.close(keyboard)
                os.close(stdin)

    def start(self, command: str) -> RunningProgram:
        """Start a program that stays, in this terminal."""
        script = f"{self._enter()}\n{command}"
        program = RunningProgram(command, script, self.folder, self.environment, subprocess.DEVNULL)
        self.staying.append(program)
        self._started_in[program] = self.name
        return program

    def stop(self) -> str:
        """Press Ctrl-C in what was started last in this terminal, or else in any; return what it prints after that."""
        here = [program for program in self.staying if self._started_in[program] == self.name]
        self.staying.remove(stopped := (here or self.staying)[-1])
        return stopped.press_ctrl_c()

    def close(self) -> None:
        """End everything that still runs."""
        while self.staying:
            with suppress(subprocess.TimeoutExpired):
                self.stop()

    def _enter(self) -> str:
        return f"[ -e {self._file()} ] && . {self._file()}"

    def _file(self) -> str:
        return shlex.quote(str(self._state / f"{re.sub('[^a-z]', '-', self.name)}.sh"))


def _open_terminal() -> tuple[int, int]:
    """Return both ends of a terminal of the usual size."""
    keyboard, screen = pty.openpty()
    fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    return keyboard, screen
