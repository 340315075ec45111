"""Switches readers from small files to the merged files.

The ledger's rows and the pointers of all Iceberg tables change in one transaction. Then folders of days, each by one
exchange, and the manifest follow. A REST catalog cannot join the transaction, so it also follows, table by table. After
a crash, the next process that opens the lake finishes the switch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lake.changes.manifest import LakeManifest
from lake.compaction.ledger import CompactionLedger, UnfinishedCompaction
from lake.compaction.plan import MergeCandidate
from lake.shown_folders import ShownFolders
from lake.storage import layout
from lake.storage.identity import Lake

Step = Callable[[], None]
Datasets = Mapping[tuple[str, int], tuple[list[str], list[str]]]
"""By dataset and schema version: the paths that are replaced, and the new paths."""


def switch(lake: Lake, number: int, made: Sequence[Mapping[str, Any]], replaced: Sequence[MergeCandidate]) -> None:
    """Replace files of the lake by merged files. The lake's lock must be held. Raises ExporterFencedError."""
    ledger = CompactionLedger(lake.ledger, lake.id)
    now = next(each for each in ledger.unfinished("writing") if each.id == number)
    commit = _iceberg_step(lake, now, is_elsewhere=False)
    with lake.ledger.transaction():
        ledger.switch(number, made, replaced)
        if commit:
            commit()
    finish(lake)


def finish(lake: Lake) -> None:
    """Finish switches that the ledger has committed. The lake's lock must be held."""
    ledger = CompactionLedger(lake.ledger, lake.id)
    for each in ledger.unfinished("switched"):
        if commit := _iceberg_step(lake, each, is_elsewhere=True):
            commit()
        if isinstance(lake.root, Path):  # in a bucket, readers use the manifest
            _switch_days(lake, each)
        LakeManifest(lake).update()
        ledger.mark_done(each.id)


def _switch_days(lake: Lake, compaction: UnfinishedCompaction) -> None:
    """Switch the folders of days to the ledger's files. A folder that the file system refuses keeps the small files."""
    shown = ShownFolders(lake)
    files = shown.files({each.dataset for each in compaction.written})
    for folder in sorted({folder for each in compaction.written if (folder := layout.day(each.path))}):
        shown.show_files(folder, compaction.id, files[folder])


def _iceberg_step(lake: Lake, compaction: UnfinishedCompaction, *, is_elsewhere: bool) -> Step | None:
    """Return the function that switches the Iceberg tables; None if there are none, or in another kind of catalog."""
    rows = lake.ledger.rows("select uri from pipeline.export_iceberg where lake_id = $1::text::uuid", (str(lake.id),))
    if not rows or bool(rows[0]["uri"]) != is_elsewhere:
        return None
    from lake.iceberg import exchange  # PyIceberg is an extra

    return exchange.prepare_exchange(lake, compaction.id, _by_dataset(compaction))


def _by_dataset(compaction: UnfinishedCompaction) -> Datasets:
    found: dict[tuple[str, int], tuple[list[str], list[str]]] = {}
    for side, paths in enumerate((compaction.replaced, compaction.written)):
        for each in paths:
            found.setdefault((each.dataset, each.version), ([], []))[side].append(each.path)
    return found
