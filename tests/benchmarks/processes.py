"""What /proc says of processes: CPU seconds, peak memory, children; and ending those that we started."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_TICKS = os.sysconf("SC_CLK_TCK")
_PARENT, _USER_TIME, _SYSTEM_TIME, _REAPED_USER, _REAPED_SYSTEM = 1, 11, 12, 13, 14  # after the name (proc(5))


def children(pid: int) -> list[int]:
    """The processes that `pid` has started and that still run."""
    numbers = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [number for number in numbers if (stat := _stat(number)) and int(stat[_PARENT]) == pid]


class Family:
    """A process and its descendants, found cheaply: a process that is nobody of ours is looked at once."""

    def __init__(self, pid: int) -> None:
        self._known = {pid}
        self._strangers: set[int] = set()

    def members(self) -> set[int]:
        """Those that run now."""
        running = {int(entry) for entry in os.listdir("/proc") if entry.isdigit()}
        for pid in sorted(running - self._known - self._strangers):  # parents first
            stat = _stat(pid)
            (self._known if stat and int(stat[_PARENT]) in self._known else self._strangers).add(pid)
        return self._known & running


def title(pid: int) -> str:
    """The command line, as the process itself may have set it."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return ""


def cpu_seconds(pid: int, *, reaped: bool = False) -> float:
    """User and system time so far; with `reaped`, those of its children that have ended too. 0 when it is gone."""
    fields = (_USER_TIME, _SYSTEM_TIME, *((_REAPED_USER, _REAPED_SYSTEM) if reaped else ()))
    stat = _stat(pid)
    return sum(int(stat[field]) for field in fields) / _TICKS if stat else 0.0


def tree_cpu_seconds(pid: int) -> float:
    """Of a process, its descendants and those that have ended."""
    return cpu_seconds(pid, reaped=True) + sum(map(tree_cpu_seconds, children(pid)))


def peak_megabytes(pid: int) -> float:
    """The most memory the process ever had resident (VmHWM), in units of 1,000,000 bytes; 0 when it is gone."""
    return _megabytes(pid, "VmHWM:")


def own_megabytes(pid: int) -> float:
    """The memory that it has resident now and shares with nobody, in the same units."""
    return _megabytes(pid, "RssAnon:")


def resident_megabytes(pid: int) -> float:
    """The memory that it has resident now, shared or not, in the same units."""
    return _megabytes(pid, "VmRSS:")


def _megabytes(pid: int, what: str) -> float:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(what):
                return int(line.split()[1]) * 1024 / 1e6
    return 0.0


QUIET_CORES = 0.2
"""What other programs may take before the figures mean little."""


class OtherPrograms:
    """How many cores programs that are not the benchmark's took since this was made: how quiet the machine was."""

    def __init__(self, *running: int) -> None:
        """`running`: our programs that will not have ended when `cores` is called; their children count with them."""
        self._running = running
        self._busy, self._mine, self._at = _machine_seconds(), self._own_seconds(), time.monotonic()

    def cores(self) -> float:
        """Call it when all programs started meanwhile have ended: only then their time counts as ours."""
        others = (_machine_seconds() - self._busy) - (self._own_seconds() - self._mine)
        return max(0.0, others / (time.monotonic() - self._at))

    def _own_seconds(self) -> float:
        return cpu_seconds(os.getpid(), reaped=True) + sum(map(tree_cpu_seconds, self._running))


@contextmanager
def running(command: list[Any], *, grace: float = 0.0, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A program that is ended with the block: asked to, waited for `grace` seconds, then killed.

    It has a session of its own, so that Ctrl-C reaches only us and everything is ended in order.
    """
    process = subprocess.Popen(
        list(map(str, command)), stdin=subprocess.DEVNULL, text=True, start_new_session=True, **options
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(grace)
            except subprocess.TimeoutExpired:
                process.kill()
        process.wait()


def _machine_seconds() -> float:
    """CPU time of all programs and of what the hypervisor took away, over all cores."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(
        int, Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    )
    return (user + nice + system + irq + softirq + steal) / _TICKS


def _stat(pid: int) -> list[str] | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
