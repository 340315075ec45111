"""spark/export.py that kills itself at a point: `python export_victim.py POINT ARGUMENTS…`. Its own process."""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "spark"))

import export  # noqa: E402

from lake.changes.files import ChangeFiles  # noqa: E402
from lake.ledger import LakeLedger  # noqa: E402
from lake.storage.folder import DiskFolder  # noqa: E402

MOVED, COMMITTED = 0, False


def die() -> None:
    """As `kill -9` does it: nothing is tidied up."""
    os.kill(os.getpid(), signal.SIGKILL)


def at(owner: type, method: str, *, after: bool = False, when: Callable[[], bool] = lambda: True) -> None:
    """Die before, or after, the first call of a method for which `when` holds."""
    original = getattr(owner, method)

    @functools.wraps(original)
    def call(*arguments: Any, **named: Any) -> Any:
        if not after and when():
            die()
        result = original(*arguments, **named)
        if after and when():
            die()
        return result

    setattr(owner, method, call)


def watch() -> None:
    """Know whether this process has committed a range: the manifest before that is the last one's."""
    commit = LakeLedger.commit

    def committed(self: LakeLedger, export: int) -> None:
        global COMMITTED
        commit(self, export)
        COMMITTED = True

    LakeLedger.commit = committed  # type: ignore[method-assign]


def at_move(number: int) -> None:
    """Die before the so-manieth file is moved into its place."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        global MOVED
        if event == "os.rename" and str(arguments[1]).endswith(".parquet"):
            MOVED += 1
            if number == MOVED:
                die()

    sys.addaudithook(hook)


POINTS: dict[str, Callable[[], None]] = {
    "before the range is begun": lambda: at(LakeLedger, "begin"),
    "after the range was begun": lambda: at(LakeLedger, "begin", after=True),
    "before the ledger knows the files": lambda: at(ChangeFiles, "publish"),
    "between the ledger's list and the first move": lambda: at_move(1),
    "between two moves": lambda: at_move(3),
    "between the last move and the ledger's commit": lambda: at(LakeLedger, "commit"),
    "between the ledger's commit and the manifest": lambda: at(DiskFolder, "write", when=lambda: COMMITTED),
    "after the manifest": lambda: at(DiskFolder, "write", after=True, when=lambda: COMMITTED),
    "while staging is cleared": lambda: at(DiskFolder, "clear_staging", when=lambda: COMMITTED),
    "when an earlier export was recovered": lambda: at(DiskFolder, "clear_staging", after=True),
}
"""The last two follow on a kill that left something."""


if __name__ == "__main__":
    watch()
    POINTS[sys.argv[1]]()
    sys.exit(export.main(sys.argv[2:]))
