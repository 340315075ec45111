"""Runs a Spark script as a process: passes on its events, keeps its log, limits its time, ends its child processes.

Whatever ends this process ends the script, too: its standard input ends, and with that its process group.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from pipeline.errors import ExportFailedError, ExportStoppedError

ScriptEvent = Mapping[str, Any]
OnEvent = Callable[[ScriptEvent], None]
END_SECONDS = 10.0
"""Seconds that a script and its JVM may take to end after SIGTERM."""
ENDS_WITH_STDIN = "PIPELINE_ENDS_WITH_STDIN"
"""The variable that is set for a script that must end with its standard input (`spark/lake/running/parent.py`)."""
KEPT_EVENT = "kept"
"""The event of a script that has finished its run and waits for another one (`spark/export.py`)."""
REST_SECONDS = 3.0
"""Seconds that the JVM may outlive the script that started it."""
_POLL = 0.1


@dataclass(frozen=True)
class SparkScript:
    """A script to run. `log`: the file for its standard error and a copy of its events; `seconds`: its time limit.

    `again`: the last arguments, which differ between the runs of one process; None if the process ends after this run.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    seconds: float
    again: Sequence[str] | None = None

    @property
    def arguments(self) -> list[str]:
        """The arguments that follow interpreter and script."""
        return list(self.command[2:])

    def may_run_in(self, other: SparkScript) -> bool:
        """Return True if a process that was started for another run can do this one."""
        return self.again is not None and self._shared == other._shared

    @property
    def _shared(self) -> tuple[list[str], dict[str, str]]:
        return list(self.command[: len(self.command) - len(self.again or ())]), dict(self.environment)


class KeptProcess:
    """The process of a run that has ended, which waits for the next one with its Spark session. Close it."""

    def __init__(self) -> None:
        self._waiting: _ScriptProcess | None = None

    def reuse(self, script: SparkScript) -> _ScriptProcess | None:
        """Return the waiting process if it can do this run; otherwise end it.

        Raises ExportFailedError if the log of the run cannot be written; then the process continues to wait.
        """
        process = self._waiting
        if process is None:
            return None
        if process.is_alive and script.may_run_in(process.script):
            with suppress(OSError):
                process.ask(script)
                self._waiting = None
                return process
        self.close()
        return None

    def keep(self, process: _ScriptProcess) -> None:
        """Let a process wait for the next run."""
        self._waiting = process

    def close(self) -> None:
        """End the waiting process."""
        if self._waiting is not None:
            self._waiting.end()
            self._waiting = None


def run(
    script: SparkScript, on_event: OnEvent, stopped: Callable[[], bool], kept: KeptProcess | None = None
) -> ScriptEvent:
    """Run a script to its end; returns its last event.

    When this returns, no process of the script is left except one that `kept` has. Raises
    ExportFailedError with the reason, ExportStoppedError once `stopped` returns True.
    """
    if kept is not None and (process := kept.reuse(script)) is not None:
        found = _run_in(process, script, on_event, stopped, kept)
        if found or process.returncode:
            return _checked(process, found, script)
        # Its Spark session had ended, so it has done nothing.
    process = _ScriptProcess(script)
    return _checked(process, _run_in(process, script, on_event, stopped, kept), script)


def _run_in(
    process: _ScriptProcess,
    script: SparkScript,
    on_event: OnEvent,
    stopped: Callable[[], bool],
    kept: KeptProcess | None,
) -> ScriptEvent:
    waits = False
    try:
        last, waits = _follow(process, script, on_event, stopped)
    finally:
        if waits and kept is not None:
            kept.keep(process)
        else:
            process.end()
    return last


def _checked(process: _ScriptProcess, last: ScriptEvent, script: SparkScript) -> ScriptEvent:
    if process.returncode:
        raise ExportFailedError(_reason(process.returncode, last, script.log))
    return last


class _ScriptProcess:
    """A started script. One thread reads its output; another copies its standard error to the log of its run."""

    def __init__(self, script: SparkScript) -> None:
        self.script = script
        self._log = _opened(script.log)
        self._process = subprocess.Popen(
            script.command,
            env={**script.environment, ENDS_WITH_STDIN: "1"},
            stdin=subprocess.PIPE,  # which ends with this process
            stdout=subprocess.PIPE,
            stderr=self._log if script.again is None else subprocess.PIPE,
            start_new_session=True,
        )
        self._printed: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._reader = self._reading(self._process.stdout, self._printed.put)
        if self._process.stderr is not None:
            self._reading(self._process.stderr, self.log)

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def returncode(self) -> int | None:
        """The exit status; None while the script runs."""
        return self._process.poll()

    def ask(self, script: SparkScript) -> None:
        """Do another run. Late standard error of the last run goes to the new log.

        Raises OSError if the process has ended, ExportFailedError if that log cannot be written.
        """
        before, self._log = self._log, _opened(script.log)
        before.close()
        assert self._process.stdin is not None  # noqa: S101  a pipe
        self._process.stdin.write(json.dumps(script.arguments).encode() + b"\n")
        self._process.stdin.flush()

    def log(self, line: bytes) -> None:
        """Add a line to the log; if the disk is full, the script itself reports it."""
        with suppress(OSError, ValueError):
            self._log.write(line)

    def lines(self) -> Iterator[bytes]:
        """Yield the lines that the script prints, and sometimes an empty one, so that the caller can check the time."""
        ended_at: float | None = None
        while True:
            try:
                yield self._printed.get(timeout=_POLL)
            except queue.Empty:
                yield b""
                if self._process.poll() is not None:
                    ended_at = ended_at or time.monotonic()
                    all_read = not self._reader.is_alive() or time.monotonic() - ended_at > REST_SECONDS
                    if all_read and self._printed.empty():
                        return

    def end(self) -> None:
        """End the script, and with it the JVM and Spark's workers, which are in its process group."""
        process = self._process
        assert process.stdin is not None  # noqa: S101  a pipe
        with self._log, suppress(BrokenPipeError), process.stdin, suppress(ProcessLookupError):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(END_SECONDS)
            deadline = time.monotonic() + REST_SECONDS
            while time.monotonic() < deadline and _others(process.pid):
                time.sleep(_POLL / 2)
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    @staticmethod
    def _reading(stream: IO[bytes] | None, act: Callable[[bytes], None]) -> threading.Thread:
        assert stream is not None  # noqa: S101  a pipe

        def read() -> None:
            with stream:
                for line in stream:
                    act(line)

        reader = threading.Thread(target=read, name="export output", daemon=True)
        reader.start()
        return reader


def _opened(log: Path) -> IO[bytes]:
    try:
        return log.open("ab", buffering=0)
    except OSError as error:
        raise ExportFailedError(f"{log}: {error.strerror}; fix that") from error


def _follow(
    process: _ScriptProcess, script: SparkScript, on_event: OnEvent, stopped: Callable[[], bool]
) -> tuple[ScriptEvent, bool]:
    """Pass events on until the run has ended; return the last event, and True if the process waits for another run.

    The JVM may keep the standard output open for longer.
    """
    deadline = time.monotonic() + script.seconds
    last: ScriptEvent = {}
    before = b""
    for line in process.lines():
        if stopped():
            raise ExportStoppedError(
                "the export was stopped; nothing is lost, the next run continues where this one ended"
            )
        if time.monotonic() > deadline:
            raise ExportFailedError(
                f"took longer than {script.seconds:g} s; raise PIPELINE_EXPORT_TIMEOUT, or see {script.log}"
            )
        if line and line != before:  # a repeated line of progress shows no progress
            before = line
            process.log(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} ".encode() + line)
            if event := _event(line):
                if event["event"] == KEPT_EVENT:
                    return last, True
                last = event
                on_event(event)
    return last, False


def _event(line: bytes) -> ScriptEvent | None:
    """Return the event in a line of JSON; None for other output, which Spark or the JVM may print."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and "event" in found else None


def _reason(code: int, last: ScriptEvent, log: Path) -> str:
    if last.get("event") == "failed":
        return str(last.get("reason"))
    if code < 0:
        return f"killed by signal {-code}; its log is {log}"
    return f"ended with status {code}: {_last_words(log)}; its log is {log}"


def _last_words(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "the script printed nothing"


def _others(group: int) -> bool:
    """Return True if the group has running members. Raises ProcessLookupError if it has none, not even zombies."""
    os.killpg(group, 0)
    stats = [stat for entry in Path("/proc").glob("[0-9]*/stat") if (stat := _stat(entry))]
    return not stats or any(state != "Z" and member == str(group) for state, _, member in stats)


def _stat(path: Path) -> list[str] | None:
    """Return state, parent and process group of a process."""
    try:
        return path.read_text().rpartition(") ")[2].split()[:3]
    except OSError:
        return None
