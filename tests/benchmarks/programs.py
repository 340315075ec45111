"""Programs that take part in a benchmark, each in its own process; they speak to us in lines."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.benchmarks import processes
from tests.benchmarks.errors import BenchmarkFailed
from tests.benchmarks.server import REPOSITORY, tail


class Program:
    """What a running program says, on standard output."""

    def __init__(self, name: str, process: subprocess.Popen[str], log: Path) -> None:
        self._name = name
        self._log = log
        self.process = process

    def expect(self, word: str, seconds: float) -> str:
        """Its next line, which begins with `word`; returns what follows. Raises BenchmarkFailed."""
        assert self.process.stdout is not None
        with self._ended_after(seconds):
            line = self.process.stdout.readline().rstrip("\n")
        said, _, rest = line.partition(" ")
        if said != word:
            raise BenchmarkFailed(f"{self._name} said {line[:200]!r} and not {word!r}: {tail(self._log)}")
        return rest

    def rest(self, seconds: float) -> list[list[str]]:
        """The words of each line until its end. Raises BenchmarkFailed when it ends with an error, or not in time."""
        assert self.process.stdout is not None
        with self._ended_after(seconds):
            said = self.process.stdout.read()
            status = self.process.wait()
        if status:
            raise BenchmarkFailed(f"{self._name} ended with {status}: {tail(self._log)}")
        return [line.split() for line in said.splitlines()]

    def require_running(self) -> None:
        """Raises BenchmarkFailed with the end of its log when it has ended."""
        if self.process.poll() is not None:
            raise BenchmarkFailed(f"{self._name} ended with {self.process.returncode}: {tail(self._log)}")

    @contextmanager
    def _ended_after(self, seconds: float) -> Iterator[None]:
        timer = threading.Timer(seconds, self.process.kill)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


@contextmanager
def program(name: str, command: list[Any]) -> Iterator[Program]:
    """Any program; it is ended with the block. `name` is for messages."""
    with (
        tempfile.NamedTemporaryFile("w", prefix="wal-bench-", suffix=".log") as log,
        processes.running(command, stdout=subprocess.PIPE, stderr=log, cwd=REPOSITORY) as process,
    ):
        yield Program(name, process, Path(log.name))


@contextmanager
def module(name: str, *arguments: Any) -> Iterator[Program]:
    """`python -m tests.benchmarks.NAME ARGUMENTS`."""
    with program(name, [sys.executable, "-m", f"tests.benchmarks.{name}", *arguments]) as running:
        yield running
