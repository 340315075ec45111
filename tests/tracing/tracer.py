"""Which functions of a running server are entered while a window is open, process by process."""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.fixtures.processes import alive, title
from tests.fixtures.server import ROOT

SITE = Path(__file__).parent / "site"
ONLY_ITSELF = ("pipeline/process/", "pipeline/logs.py", "pipeline/errors.py", "pipeline/server/", "pipeline/cli/")
"""Files that hold a process up, not the row: what they call may be on a row's way."""
WITH_ALL_BELOW = {
    "queues": ("pipeline/consumers/queue/queue_filler.py",),
    "supervision": (
        "pipeline/process/supervised.py",
        "pipeline/postgres/role_locks.py",
        "pipeline/capture/catchup/coordinator.py:CatchUpCoordinator._supervise",
    ),
    "sampling": ("pipeline/capture/replication/lag_sampler.py",),
}
"""What goes on beside a row: neither these, files or functions, nor what they call is counted."""


@dataclass(frozen=True)
class Entered:
    """A function that a process has entered. `stack`: it, then its callers, each `path:qualified_name`."""

    process: str
    window: int
    stack: tuple[str, ...]

    @property
    def file(self) -> str:
        return self.stack[0].partition(":")[0]

    def counts(self, left_out: Collection[str]) -> bool:
        """True if it belongs to a row's way. `left_out`: what is left out with all that it calls."""
        if self.file.startswith(ONLY_ITSELF) or any(each.endswith(":<module>") for each in self.stack[:-1]):
            return False  # modules are imported late, and once
        return not any(each.startswith(tuple(left_out)) for each in self.stack)


class Tracer:
    """Opens windows, and reads what was entered in them."""

    def __init__(self, folder: Path, code: Path = ROOT) -> None:
        """`code`: the folder of the code that runs."""
        self._folder, self._code = folder, code
        (folder / "window").write_bytes(b"\0")
        with (folder / "window").open("r+b") as file:
            self._window = mmap.mmap(file.fileno(), 1)
        self._opened = 0
        self._titles = dict[int, str]()

    @property
    def variables(self) -> Mapping[str, str]:
        """What makes a Python process one that is traced."""
        path = f"{SITE}{os.pathsep}{self._code}"
        return {"PYTHONPATH": path, "TRACE_PATH": str(self._folder), "TRACE_CODE": str(self._code)}

    @contextmanager
    def window(self) -> Iterator[int]:
        """Note what is entered until the end of the block; yields the window's number."""
        self._opened += 1
        self._window[0] = self._opened
        try:
            yield self._opened
        finally:
            self._window[0] = 0
            self._name_processes()

    def entered(self) -> Iterator[Entered]:
        """All that was noted so far."""
        for file in sorted(self._folder.glob("*.jsonl")):
            for line in file.read_text().splitlines():
                window, stack = json.loads(line)
                yield Entered(self._titles.get(int(file.stem), file.stem), window, tuple(stack))

    def _name_processes(self) -> None:
        """While they run, each has its role as its title."""
        for file in self._folder.glob("*.jsonl"):
            pid = int(file.stem)
            if pid not in self._titles and alive(pid):
                self._titles[pid] = title(pid).removeprefix("pipeline: ")
