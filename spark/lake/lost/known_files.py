"""Reads the paths that the ledger knows: the files that it lists, and the files that it will remove."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lake.changes.files import ChangeFiles
from lake.ledger import bigints
from lake.states.folders import StateFolders
from lake.storage import layout
from lake.storage.identity import Lake

_FILES = """
    select f.path, e.state from pipeline.export_files f join pipeline.exports e on e.id = f.export_id
    where f.lake_id = $1::text::uuid and e.state in ('publishing', 'committed')
"""
_REPLACED = "select path from pipeline.export_replaced where lake_id = $1::text::uuid"
_MERGING = """
    select w.path from pipeline.export_compactions c cross join json_to_recordset(c.written) w (path text)
    where c.lake_id = $1::text::uuid and c.state in ('writing', 'switched')
"""
_STATES = """
    select s.id, s.dataset, s.seq, s.state, coalesce(s.files, '[]')::text as files from pipeline.export_states s
    where s.lake_id = $1::text::uuid and s.state in ('writing', 'committed', 'dropped')
"""
_FORGET = "delete from pipeline.export_states where id = any($1::text::bigint[])"
_FORGOTTEN = (
    # The newest version of a table is superseded by none.
    """
    update pipeline.export_states s set superseded_at = null
    where s.lake_id = $1::text::uuid and s.state = 'committed' and s.superseded_at is not null and not exists (
        select from pipeline.export_states n
        where n.table_id = s.table_id and n.state = 'committed' and n.seq > s.seq
    )
    """,
    """
    update pipeline.export_tables t set dataset = null, waits_since = null
    where t.lake_id = $1::text::uuid and not exists (
        select from pipeline.export_states s where s.table_id = t.id and s.state = 'committed'
    )
    """,
    "update pipeline.export_tables set shows = null where lake_id = $1::text::uuid",
    "update pipeline.lakes set folded_upto = null where id = $1::text::uuid",
)
_LATEST = """
    select t.dataset, s.seq from pipeline.export_tables t
    cross join lateral (
        select max(s.seq) as seq from pipeline.export_states s where s.table_id = t.id and s.state = 'committed'
    ) s
    where t.lake_id = $1::text::uuid and t.dataset is not null and s.seq is not null
"""


@dataclass(frozen=True)
class StateFiles:
    """A version of a table's state; `files`: their paths in the lake."""

    id: int
    dataset: str
    seq: int
    is_committed: bool
    files: Sequence[str]


@dataclass(frozen=True)
class KnownFiles:
    """Paths that the ledger knows.

    `listed`: files of changes. `others`: paths that are in progress, or that the ledger will remove itself. `schemas`:
    files of columns. `states`: the versions of states.
    """

    listed: frozenset[str]
    others: frozenset[str]
    schemas: frozenset[str]
    states: Sequence[StateFiles]

    def knows(self, path: str) -> bool:
        """Return True if the ledger knows a path, or a folder of the path."""
        return (
            path in self.listed or path in self.others or any(str(each) in self.others for each in Path(path).parents)
        )

    @property
    def versions(self) -> set[tuple[str, int]]:
        """The dataset and seq of each version of a state."""
        return {(each.dataset, each.seq) for each in self.states}


def read_known_files(lake: Lake) -> KnownFiles:
    """Read all paths that the ledger knows of a lake whose lock is held."""
    mine = (str(lake.id),)
    rows = lake.ledger.rows
    schemas = ChangeFiles(lake.ledger, lake.id).newest_schemas()
    return KnownFiles(
        frozenset(row["path"] for row in rows(_FILES, mine)),
        frozenset(row["path"] for row in (*rows(_REPLACED, mine), *rows(_MERGING, mine))),
        frozenset(layout.schema_file(name, version) for name, versions in schemas.items() for version in versions),
        [_state(lake, row) for row in rows(_STATES, mine)],
    )


def _state(lake: Lake, row: Mapping[str, Any]) -> StateFiles:
    base = layout.CURRENT
    if isinstance(lake.root, Path):
        base = str(StateFolders(lake.root, row["dataset"]).version(row["seq"]).relative_to(lake.root))
    files = [f"{base}/{file['name']}" for file in json.loads(row["files"])]
    return StateFiles(row["id"], row["dataset"], row["seq"], row["state"] == "committed", files)


def forget_versions(lake: Lake, versions: Iterable[StateFiles]) -> None:
    """Forget versions that do not exist: their tables are folded again, from the version before or the first change."""
    with lake.ledger.transaction():
        lake.ledger.execute(_FORGET, (bigints(each.id for each in versions),))
        for statement in _FORGOTTEN:
            lake.ledger.execute(statement, (str(lake.id),))


def newest_versions(lake: Lake) -> dict[str, int]:
    """Return the seq of the newest version of each table, by the name under which readers find the table."""
    return {row["dataset"]: row["seq"] for row in lake.ledger.rows(_LATEST, (str(lake.id),))}
