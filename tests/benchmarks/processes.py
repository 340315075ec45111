"""What psutil says of processes: CPU seconds, peak memory, children; and ending those that we started."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil

from tests.fixtures.processes import GONE, children


class Family:
    """A process and its descendants, found cheaply: a foreign process is read once."""

    def __init__(self, pid: int) -> None:
        self.head = pid
        self._known = {pid}
        self._strangers: set[int] = set()

    def members(self) -> set[int]:
        """Those that run now."""
        running = set(psutil.pids())
        for pid in sorted(running - self._known - self._strangers):  # parents first
            (self._known if self._parent(pid) in self._known else self._strangers).add(pid)
        return self._known & running

    @staticmethod
    def _parent(pid: int) -> int:
        try:
            return int(psutil.Process(pid).ppid())
        except GONE:
            return 0


def cpu_seconds(pid: int, *, reaped: bool = False) -> float:
    """User and system time so far; with `reaped`, those of its children that have ended too. 0 when it is gone."""
    try:
        times = psutil.Process(pid).cpu_times()
    except GONE:
        return 0.0
    return float(times.user + times.system + (times.children_user + times.children_system if reaped else 0))


def tree_cpu_seconds(pid: int) -> float:
    """Of a process, its descendants and those that have ended."""
    while True:
        those = children(pid)
        total = cpu_seconds(pid, reaped=True) + sum(map(tree_cpu_seconds, those))
        if set(those) <= set(children(pid)):  # else one has ended meanwhile, and its time may be in neither
            return total


QUIET_CORES = 0.2
"""What other programs may take before the figures mean little."""


class OtherPrograms:
    """How many cores programs that are not the benchmark's took since this was made: how quiet the machine was."""

    def __init__(self, *running: int) -> None:
        """`running`: our programs that will not have ended when `cores` is called; their children count with them."""
        self._running = running
        self._busy, self._mine, self._at = machine_seconds(), self._own_seconds(), time.monotonic()

    def cores(self) -> float:
        """Call it when all programs started meanwhile have ended: only then their time counts as ours."""
        others = (machine_seconds() - self._busy) - (self._own_seconds() - self._mine)
        return max(0.0, others / (time.monotonic() - self._at))

    def _own_seconds(self) -> float:
        return cpu_seconds(os.getpid(), reaped=True) + sum(map(tree_cpu_seconds, self._running))


@contextmanager
def running(command: list[Any], *, grace: float = 0.0, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A program that is ended with the block: asked to, waited for `grace` seconds, then killed.

    It has its own session, so that Ctrl-C reaches only us and everything is ended in order.
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


def machine_seconds() -> float:
    """CPU time of all programs and of what the hypervisor took away, over all cores."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq + times.steal)
