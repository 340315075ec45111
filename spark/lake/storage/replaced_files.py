"""Removes replaced files after a while, so that no query loses files that it is reading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from lake.ledger import bigints
from lake.storage import layout
from lake.storage.identity import Lake

KEEP = 86_400.0
"""Seconds that replaced files stay, unless the user says otherwise."""
CHECKPOINTS = 7 * 86_400.0
"""Seconds that the last current state of each day stays, unless the user says otherwise."""
_AT_ONCE = 500
"""The number of paths that are removed at once."""
_DUE = """
    select id, path from pipeline.export_replaced
    where lake_id = $1::text::uuid and replaced_at <= now() - make_interval(secs => $2) order by replaced_at, id
"""
_NAMES = """
    select id, path from pipeline.export_replaced
    where lake_id = $1::text::uuid and replaced_at = '-infinity' order by id
"""
_RECORD = "insert into pipeline.export_replaced (lake_id, path) values ($1::text::uuid, $2)"
_TAKEN = "select 1 from pipeline.export_tables where lake_id = $1::text::uuid and dataset = $2"


def record(lake: Lake, path: str) -> None:
    """Record that a path was replaced just now."""
    lake.ledger.execute(_RECORD, (str(lake.id), path))


def remove(lake: Lake, keep: float) -> None:
    """Remove paths that were replaced at least `keep` seconds ago. The lake's lock must be held."""
    _remove(lake, lake.ledger.rows(_DUE, (str(lake.id), keep)))


def remove_names(lake: Lake) -> None:
    """Remove the `latest` of names that no table has now."""
    _remove(lake, lake.ledger.rows(_NAMES, (str(lake.id),)))


def _remove(lake: Lake, rows: Sequence[Mapping[str, Any]]) -> None:
    for start in range(0, len(rows), _AT_ONCE):
        some = rows[start : start + _AT_ONCE]
        lake.folder.remove_all(row["path"] for row in some if not _is_taken(lake, PurePosixPath(row["path"])))
        lake.ledger.execute(
            "delete from pipeline.export_replaced where id = any($1::text::bigint[])",
            (bigints(row["id"] for row in some),),
        )


def _is_taken(lake: Lake, path: PurePosixPath) -> bool:
    """Return True if a path is the `latest` of a name that a table has again."""
    dataset = path.parent.name
    return str(path) == layout.latest(dataset) and bool(lake.ledger.rows(_TAKEN, (str(lake.id), dataset)))
