"""Lets the current states of large tables wait until enough rows have changed, or enough time has passed.

The changes that a waiting state lacks are in the files of changes, so no other deltas are written. The next fold and
`export state` apply them to the existing version, so both are exact even if states wait.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import pyarrow.compute as pc

from lake.changes.files import ChangeFile
from lake.ledger import bigints
from lake.states.ledger import TableRoot
from lake.states.plan import PlannedFold, StateVersion
from lake.storage import reading
from lake.storage.identity import Lake

SMALL = 1024 * 1024
"""A state whose files have at most this many bytes is written at each run."""
PART = 20
"""A table is written again if at least one in this many rows has changed."""
_WAITING = """
    select t.id, t.source_id::text, t.source_epoch, t.table_oid,
        extract(epoch from now() - t.waits_since)::float8 as seconds, (
            select s.source_table_oid from pipeline.export_states s
            where s.table_id = t.id and s.state = 'committed' order by s.seq desc limit 1
        ) as newest_oid
    from pipeline.export_tables t where t.lake_id = $1::text::uuid and t.waits_since is not null
"""
_WAIT = """
    update pipeline.export_tables set waits_since = now()
    where id = any($1::text::bigint[]) and waits_since is null
"""
_WAIT_NO_MORE = "update pipeline.export_tables set waits_since = null where id = any($1::text::bigint[])"


@dataclass(frozen=True)
class WaitingState:
    """A table whose state has lacked changes for `seconds`; `oids`: the oids under which its changes are found."""

    id: int
    root: TableRoot
    oids: Collection[int]
    seconds: float


def may_wait(foldings: Sequence[PlannedFold], newest: StateVersion | None) -> bool:
    """Return True if the newest version may stay: it is large, and only few of its rows have changed."""
    if newest is None or len(foldings) != 1:
        return False
    [folding] = foldings
    refused = any(reading.refused for source in folding.sources for reading in source.readings)
    is_same = (newest.dataset, newest.form_id) == (folding.dataset, folding.form.form.id)
    if folding.base != newest or folding.rekeyed is not None or not is_same or refused:
        return False
    return sum(file.bytes for file in newest.files) > SMALL and folding.rows * PART < newest.rows


def empties_table(lake: Lake, files: Iterable[ChangeFile]) -> bool:
    """Return True if these changes have a truncate, which changes every row, or if a file cannot be read."""
    try:
        for file in files:
            with reading.parquet(lake.root / file.path) as opened:
                if pc.any(pc.equal(opened.read(["action"]).column(0), "truncate")).as_py():
                    return True
    except OSError:  # the fold reports the file and the reason
        return True
    return False


def read_waiting(lake: Lake) -> dict[TableRoot, WaitingState]:
    """Return the tables that wait, by their roots."""
    found = {}
    for row in lake.ledger.rows(_WAITING, (str(lake.id),)):
        root = row["source_id"], row["source_epoch"], row["table_oid"]
        oids = {row["table_oid"], row["newest_oid"] or row["table_oid"]}
        found[root] = WaitingState(row["id"], root, oids, row["seconds"])
    return found


def store_waiting(lake: Lake, wait: Iterable[int], no_more: Iterable[int]) -> None:
    """Store that tables begin to wait, unless they wait already, and that others no longer wait."""
    for statement, tables in ((_WAIT, list(wait)), (_WAIT_NO_MORE, list(no_more))):
        if tables:
            lake.ledger.execute(statement, (bigints(tables),))
