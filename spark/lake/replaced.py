"""What newer files have replaced: it stays for a while, so that no query loses what it reads, and then is removed."""

from __future__ import annotations

import shutil
from pathlib import PurePosixPath

from lake.folder import unfit
from lake.identity import Lake

KEEP = 86_400.0
"""Seconds that replaced files stay, unless the user says otherwise."""
_DUE = """
    select id, path from pipeline.export_replaced
    where lake_id = $1::text::uuid and replaced_at <= now() - make_interval(secs => $2) order by id
"""
_TAKEN = "select 1 from pipeline.export_tables where lake_id = $1::text::uuid and dataset = $2"


def remove(lake: Lake, keep: float) -> None:
    """Remove what was replaced `keep` seconds ago or longer. The lake's lock must be held."""
    for row in lake.ledger.rows(_DUE, (str(lake.id), keep)):
        path = PurePosixPath(row["path"])
        if path.name != "latest" or not lake.ledger.rows(_TAKEN, (str(lake.id), path.parent.name)):
            found = lake.root / path
            with unfit(found):
                if found.is_dir() and not found.is_symlink():
                    shutil.rmtree(found)
                else:
                    found.unlink(missing_ok=True)
        lake.ledger.execute("delete from pipeline.export_replaced where id = $1", (row["id"],))
