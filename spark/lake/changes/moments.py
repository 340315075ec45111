"""Finds the seq of a moment: the log as it was before the first transaction that committed after the moment.

Commit times grow with seq, with small exceptions: the source sets a commit's time a moment before its position.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow.compute as pc
import pyarrow.dataset as ds

from lake.errors import ExportError
from lake.storage.identity import Lake
from lake.storage.reading import dataset

_RANGE = """
    select e.id, e.after_seq, e.upto_seq from pipeline.exports e
    where e.lake_id = $1::text::uuid and e.state = 'committed'
        and (e.last_committed_at is null or e.last_committed_at > $2::text::timestamptz)
    order by e.after_seq
"""
_FILES = """
    select path, first_seq from pipeline.export_files where export_id = $1 and merged = 0
    union all
    select path, first_seq from pipeline.export_files
    where lake_id = $2::text::uuid and merged > 0 and last_seq > $3 and first_seq <= $4
    order by first_seq
"""


def parse(text: str) -> int | datetime:
    """Parse a seq, or a time in ISO 8601, which is UTC without an offset. Raises ExportError for another text."""
    if text.isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ExportError(
            f"--as-of {text} is neither a seq nor a time; write 1234, or 2026-11-25T12:00:00+01:00"
        ) from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def seq_at(lake: Lake, as_of: int | datetime) -> int:
    """Return the last seq of the log as it was at a moment; return a seq unchanged.

    Raises ExportError if nothing was committed before the moment, or if the lake may not reach the moment.
    """
    if isinstance(as_of, int):
        return as_of
    for row in lake.ledger.rows(_RANGE, (str(lake.id), as_of.isoformat())):
        if (found := _first_after(lake, row, as_of)) is not None:
            return _not_before_all(found - 1, as_of)
    raise ExportError(
        f"the lake holds nothing that was committed after {as_of.isoformat(sep=' ')}, so it may lack earlier commits;"
        f" export more, or name seq {lake.ledger.exported_upto(lake.id)}, the last that it holds"
    )


def _not_before_all(seq: int, as_of: datetime) -> int:
    if seq < 1:
        raise ExportError(f"the lake begins after {as_of.isoformat(sep=' ')}; name a later time")
    return seq


def _first_after(lake: Lake, export: Mapping[str, Any], as_of: datetime) -> int | None:
    """Return the first seq of a range that was committed after the moment; None if there is none."""
    found: int | None = None
    parameters = export["id"], str(lake.id), export["after_seq"], export["upto_seq"]
    for file in lake.ledger.rows(_FILES, parameters):
        if found is not None and file["first_seq"] >= found:
            continue
        changes = dataset(lake.root / file["path"]).to_table(["seq"], filter=ds.field("committed_at") > as_of)
        if changes.num_rows:
            first = pc.min(changes.column("seq")).as_py()
            found = first if found is None else min(found, first)
    return found
