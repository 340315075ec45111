"""Runs a Spark script as a process: passes on its events, keeps its log, limits its time, ends all that it started.

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
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from pipeline.errors import ExportFailed, ExportStopped

Event = Mapping[str, Any]
OnEvent = Callable[[Event], None]
END_SECONDS = 10.0
"""How long a script and its JVM may take to end after SIGTERM."""
ENDS_WITH_STDIN = "PIPELINE_ENDS_WITH_STDIN"
"""Set for a script that is to end with its standard input (`spark/lake/parent.py`)."""
REST_SECONDS = 3.0
"""How long the JVM may outlive the script that started it."""
_POLL = 0.1


@dataclass(frozen=True)
class Script:
    """What to run. `log`: the file for its standard error and a copy of its events; `seconds`: its time limit."""

    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    seconds: float


def run(script: Script, on_event: OnEvent, stopped: Callable[[], bool]) -> Event:
    """Run it to its end; returns its last event.

    Whatever happens, no process that it started is left when this returns. Raises ExportFailed with the reason,
    ExportStopped once `stopped` returns True.
    """
    with _started(script) as (process, log):
        last = _follow(process, script, log, on_event, stopped)
    if process.returncode:
        raise ExportFailed(_reason(process.returncode, last, script.log))
    return last


@contextmanager
def _started(script: Script) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    try:
        log = script.log.open("ab", buffering=0)
    except OSError as error:
        raise ExportFailed(f"{script.log}: {error.strerror}; fix that") from error
    with log:
        process = subprocess.Popen(
            script.command,
            env={**script.environment, ENDS_WITH_STDIN: "1"},
            stdin=subprocess.PIPE,  # which ends with this process
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
        try:
            yield process, log
        finally:
            _end(process)


def _follow(
    process: subprocess.Popen[bytes], script: Script, log: IO[bytes], on_event: OnEvent, stopped: Callable[[], bool]
) -> Event:
    """Pass its events on until it has ended; the JVM may keep its standard output open for longer."""
    deadline = time.monotonic() + script.seconds
    last: Event = {}
    before = b""
    for line in _lines(process):
        if stopped():
            raise ExportStopped("the export was stopped; nothing is lost, the next run continues where this one ended")
        if time.monotonic() > deadline:
            raise ExportFailed(
                f"took longer than {script.seconds:g} s; raise PIPELINE_EXPORT_TIMEOUT, or see {script.log}"
            )
        if line and line != before:  # a repeated line is progress that made none
            before = line
            with suppress(OSError):  # if the disk is full, the script itself reports it
                log.write(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} ".encode() + line)
            if event := _event(line):
                last = event
                on_event(event)
    return last


def _lines(process: subprocess.Popen[bytes]) -> Iterator[bytes]:
    """The lines that it prints; an empty one now and then, so that the caller can check for a stop or a timeout."""
    assert process.stdout is not None  # noqa: S101  a pipe
    printed: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    output = process.stdout

    def read() -> None:
        with output:
            for line in output:
                printed.put(line)

    reader = threading.Thread(target=read, name="export output", daemon=True)
    reader.start()
    ended_at: float | None = None
    while True:
        try:
            yield printed.get(timeout=_POLL)
        except queue.Empty:
            yield b""
            if process.poll() is not None:
                ended_at = ended_at or time.monotonic()
                all_read = not reader.is_alive() or time.monotonic() - ended_at > REST_SECONDS
                if all_read and printed.empty():
                    return


def _event(line: bytes) -> Event | None:
    """The event in a line of JSON; None for other output, as Spark or the JVM may print."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and "event" in found else None


def _reason(code: int, last: Event, log: Path) -> str:
    if last.get("event") == "failed":
        return str(last.get("reason"))
    if code < 0:
        return f"killed by signal {-code}; its log is {log}"
    return f"ended with status {code}: {_last_words(log)}; its log is {log}"


def _last_words(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it printed nothing"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the script, and with it the JVM and Spark's workers, which are in its process group."""
    assert process.stdin is not None  # noqa: S101  a pipe
    with process.stdin, suppress(ProcessLookupError):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_SECONDS)
        deadline = time.monotonic() + REST_SECONDS
        while time.monotonic() < deadline and _others(process.pid):
            time.sleep(_POLL / 2)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _others(group: int) -> bool:
    """Whether the group has running members. Raises ProcessLookupError when it has none, not even zombies."""
    os.killpg(group, 0)
    stats = [stat for entry in Path("/proc").glob("[0-9]*/stat") if (stat := _stat(entry))]
    return not stats or any(state != "Z" and member == str(group) for state, _, member in stats)


def _stat(path: Path) -> list[str] | None:
    """State, parent and process group of a process."""
    try:
        return path.read_text().rpartition(") ")[2].split()[:3]
    except OSError:
        return None
