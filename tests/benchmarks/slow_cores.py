"""A machine of many slow cores: each process held to a share of one, so that none waits for another's core."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from tests.benchmarks.errors import CannotRun

CGROUPS = Path("/sys/fs/cgroup")
PERIOD = 20_000
"""Microseconds: short, so that a process which waits for another is not held up by the whole of a usual 100 ms."""
INTERVAL = 0.01
"""Seconds between two looks for processes that have started."""


class SlowCores(threading.Thread):
    """For as long as the `with` block, each process that `members` names is in its own control group.

    `share`: of a core, at least 0.05. A process that starts is as fast as its parent until it is seen.
    """

    def __init__(self, members: Callable[[], Iterable[int]], share: float) -> None:
        """Raises CannotRun where control groups may not be made."""
        super().__init__(name="slow cores", daemon=True)
        self._members = members
        self._share = share
        self._root = _root()
        self._held: dict[int, Path] = {}
        self._ending = threading.Event()

    def __enter__(self) -> SlowCores:
        self._look()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self.join()
        for pid, group in self._held.items():
            with suppress(OSError):
                (self._root / "cgroup.procs").write_text(str(pid))
            with suppress(OSError):
                group.rmdir()

    def run(self) -> None:
        while not self._ending.wait(INTERVAL):
            self._look()

    def _look(self) -> None:
        for pid in set(self._members()) - self._held.keys():
            group = self._root / f"pipeline-bench-{os.getpid()}-{pid}"
            group.mkdir(exist_ok=True)
            _limit(group, round(PERIOD * self._share))
            with suppress(ProcessLookupError):  # it has ended meanwhile
                (group / "cgroup.procs").write_text(str(pid))
            self._held[pid] = group


def require() -> None:
    """Raises CannotRun where no process can be held to a share of a core, and says why."""
    group = _root() / f"pipeline-bench-{os.getpid()}"
    try:
        group.mkdir()
        try:
            _limit(group, PERIOD)
        finally:
            group.rmdir()
    except OSError as error:
        raise CannotRun(
            f"processes cannot be held to a share of a core here: {error}; run it as root, outside of a container"
        ) from error


def _root() -> Path:
    """Where groups with a quota are made: the `cpu` hierarchy of version 1, or the only one of version 2."""
    return CGROUPS / "cpu" if (CGROUPS / "cpu" / "cpu.cfs_quota_us").exists() else CGROUPS


def _limit(group: Path, quota: int) -> None:
    if (group / "cpu.cfs_quota_us").exists():
        (group / "cpu.cfs_period_us").write_text(str(PERIOD))
        (group / "cpu.cfs_quota_us").write_text(str(quota))
    else:
        (group / "cpu.max").write_text(f"{quota} {PERIOD}")
