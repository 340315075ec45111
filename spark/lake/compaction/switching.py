"""Readers go over from small files to those that were made of them.

The ledger's rows and the pointers of all Iceberg tables move in one transaction; then folders of days and the manifest
follow, each by one rename. Whoever opens the lake next does what a crash has left of that. A REST catalog, which takes
no part in the transaction, follows too, a table at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from lake import days, layout
from lake.changes.manifest import Manifest
from lake.compaction.ledger import CompactionLedger, ListedFile, Unfinished
from lake.compaction.plan import File
from lake.folder import unfit
from lake.identity import Lake

Step = Callable[[], None]
Datasets = Mapping[tuple[str, int], tuple[list[str], list[str]]]
"""By dataset and schema version: the paths that go, and those that come."""


def switch(lake: Lake, number: int, made: Sequence[Mapping[str, Any]], replaced: Sequence[File]) -> None:
    """Make these files part of the lake in place of those. The lake's lock must be held. Raises Fenced."""
    book = CompactionLedger(lake.ledger, lake.id)
    now = next(each for each in book.unfinished("writing") if each.id == number)
    commit = _iceberg(lake, now, is_elsewhere=False)
    with lake.ledger.transaction():
        book.switch(number, made, replaced)
        if commit:
            commit()
    finish(lake)


def finish(lake: Lake) -> None:
    """Bring to the end what is in the ledger already. The lake's lock must be held."""
    book = CompactionLedger(lake.ledger, lake.id)
    for each in book.unfinished("switched"):
        if commit := _iceberg(lake, each, is_elsewhere=True):
            commit()
        if isinstance(lake.root, Path):  # in a bucket there are no links, and readers ask the manifest
            _switch_days(lake.root, book, each)
        Manifest(lake).update()
        book.done(each.id)


def _switch_days(root: Path, book: CompactionLedger, compaction: Unfinished) -> None:
    gone, added = _by_folder(compaction.replaced), _by_folder(compaction.written)
    for folder, paths in added.items():
        names = {PurePosixPath(path).name for path in gone[folder]}
        with unfit(root / folder):
            if (before := days.shown(root, folder)) != layout.day_view(folder, compaction.id):
                book.replaced_folder(before)
                days.switch(root, folder, compaction.id, names, paths)


def _by_folder(paths: Sequence[ListedFile]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for each in paths:
        if folder := layout.day(each.path):
            found.setdefault(folder, []).append(each.path)
    return found


def _iceberg(lake: Lake, compaction: Unfinished, *, is_elsewhere: bool) -> Step | None:
    """What moves the Iceberg tables; None where there are none, or they are in another kind of catalog."""
    rows = lake.ledger.rows("select uri from pipeline.export_iceberg where lake_id = $1::text::uuid", (str(lake.id),))
    if not rows or bool(rows[0]["uri"]) != is_elsewhere:
        return None
    from lake.iceberg import exchange  # PyIceberg is an extra

    return exchange.prepared(lake, compaction.id, _by_dataset(compaction))


def _by_dataset(compaction: Unfinished) -> Datasets:
    found: dict[tuple[str, int], tuple[list[str], list[str]]] = {}
    for side, paths in enumerate((compaction.replaced, compaction.written)):
        for each in paths:
            found.setdefault((each.dataset, each.version), ([], []))[side].append(each.path)
    return found
