"""What newer files have replaced: it stays for a while, so that no query loses what it reads, and then is removed."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from lake.folder import unfit
from lake.identity import Lake

LATEST = "latest"
"""The link that a table's current state is found by."""
KEEP = 86_400.0
"""Seconds that replaced files stay, unless the user says otherwise."""
CHECKPOINTS = 7 * 86_400.0
"""Seconds that the last current state of each day stays, likewise."""
_DUE = """
    select id, path from pipeline.export_replaced
    where lake_id = $1::text::uuid and replaced_at <= now() - make_interval(secs => $2) order by replaced_at, id
"""
_NAMES = """
    select id, path from pipeline.export_replaced
    where lake_id = $1::text::uuid and replaced_at = '-infinity' order by id
"""
_TAKEN = "select 1 from pipeline.export_tables where lake_id = $1::text::uuid and dataset = $2"


def remove(lake: Lake, keep: float) -> None:
    """Remove what was replaced `keep` seconds ago or longer. The lake's lock must be held."""
    _remove(lake, lake.ledger.rows(_DUE, (str(lake.id), keep)))


def remove_names(lake: Lake) -> None:
    """Remove the `latest` of names that no table has any more."""
    _remove(lake, lake.ledger.rows(_NAMES, (str(lake.id),)))


def _remove(lake: Lake, rows: Sequence[Mapping[str, Any]]) -> None:
    for row in rows:
        path = PurePosixPath(row["path"])
        is_taken = path.name == LATEST and lake.ledger.rows(_TAKEN, (str(lake.id), path.parent.name))
        with unfit(lake.root / path):
            if (lake.root / path).is_dir() and path.name != LATEST:
                shutil.rmtree(lake.root / path)
            elif not is_taken:
                (lake.root / path).unlink(missing_ok=True)
        lake.ledger.execute("delete from pipeline.export_replaced where id = $1", (row["id"],))
