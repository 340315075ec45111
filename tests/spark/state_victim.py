"""Publishes the next version of a table's state, without Spark, and kills itself at one of its steps.

`state_victim.py DSN LAKE SEQ STEP`: STEP counts what it does to the disk and to the ledger, the first is 1.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from lake import ledger
from lake.changes import exporter
from lake.folding import current
from lake.states.fold import seal_bucket
from lake.states.fold_tasks import FoldResult
from lake.states.lake_tables import LakeTables
from lake.states.ledger import StateLedger
from lake.states.plan import plan
from lake.storage.folder import DiskFolder

TABLE = "public.single"


def main(dsn: str, directory: str, seq: int, fatal: int) -> None:
    """The new version has one rewritten bucket, the others linked."""
    with ledger.open_ledger(dsn) as book:
        lake = exporter.open_lake(book, DiskFolder(Path(directory)), "public.sequin_events")
        states = StateLedger(book, lake.id)
        tables = LakeTables(lake, seq, (), [TABLE])
        table = tables.owner(TABLE)
        assert table is not None
        known = states.add_table(table.root)
        [folding] = plan(
            tables.history(table), lambda after: tables.files(table, after), states.versions(known.id), seq
        )
        assert folding.base is not None
        first, *kept = folding.base.files
        version = states.begin(known.id, folding)
        assert isinstance(lake.root, Path)
        staging = lake.root / current._staging(version) / f"bucket={first.bucket}"
        staging.mkdir(parents=True)
        base = current.base_folder(lake, folding)
        assert isinstance(base, Path)
        old = base / first.name
        pq.write_table(pq.ParquetFile(old).read(), staging / "new.parquet")
        folded = FoldResult([seal_bucket(staging / "new.parquet")], kept, folding.base.buckets)
        _die_at(fatal)
        current.publish(lake, known.id, version, folding, folded)


def _die_at(fatal: int) -> None:
    steps = 0

    def counted(act: Callable[..., Any]) -> Callable[..., Any]:
        def step(*values: Any, **named: Any) -> Any:
            nonlocal steps
            steps += 1
            if steps == fatal:
                os.kill(os.getpid(), signal.SIGKILL)
            return act(*values, **named)

        return step

    for owner, name in (
        (os, "rename"),
        (os, "replace"),
        (shutil, "rmtree"),
        (StateLedger, "commit"),
        (StateLedger, "record_shown"),
    ):
        setattr(owner, name, counted(getattr(owner, name)))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
