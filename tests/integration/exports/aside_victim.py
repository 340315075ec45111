"""Sets aside what a lake lost, and kills itself at a step: `aside_victim DSN LAKE STEPS`."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from lake import ledger
from lake.changes import exporter
from lake.storage.folder import DiskFolder
from tests.fixtures.lake_ledger import EVENTS
from tests.integration.exports.test_set_aside import crashing


def main(dsn: str, folder: str, steps: int) -> None:
    """Open the lake, which does all that is left."""
    crashing(pytest.MonkeyPatch(), steps, lambda: os.kill(os.getpid(), signal.SIGKILL))
    with ledger.open_ledger(dsn) as book:
        exporter.open_lake(book, DiskFolder(Path(folder)), EVENTS)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
