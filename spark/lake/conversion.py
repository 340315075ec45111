"""Converts a lake of an earlier version, in which days and `latest` are links, and state versions lie in `current`.

During the conversion, readers find every event and every row once. Each state version gets a second folder, below
`files`, which the next commit of the Iceberg tables names. Then each link is exchanged with a folder. If a conversion
is interrupted, the next run finishes it.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

from lake.shown_folders import ShownFolders
from lake.states.folders import VERSION, link_or_copy
from lake.storage import days, layout, replaced_files
from lake.storage.folder import unfit
from lake.storage.identity import Lake
from lake.storage.new_file import sync

_HAS_LINKS = "select links from pipeline.lakes where id = $1::text::uuid"
_HAS_NONE = "update pipeline.lakes set links = false where id = $1::text::uuid"
_OTHER_PATHS = """
    update pipeline.export_iceberg_tables set state_id = null
    where lake_id = $1::text::uuid and table_id is not null and state_id is not null
"""
_HAS_OLD_PATHS = """
    select exists (
        select from pipeline.export_iceberg_tables
        where lake_id = $1::text::uuid and table_id is not null and state_id is null
    ) as found
"""
_RETIRED = "select path from pipeline.export_replaced where lake_id = $1::text::uuid and path like 'current/%/v%'"


def convert(lake: Lake) -> None:
    """Replace links by folders, if the file system can exchange them. The lake's lock must be held."""
    if not isinstance(lake.root, Path) or not lake.ledger.rows(_HAS_LINKS, (str(lake.id),))[0]["links"]:
        return
    if lake.exchange_refusal is not None:
        return
    shown = ShownFolders(lake)
    with unfit(lake.root):
        _place_versions(lake, lake.root)
        _retire_links(lake.root, shown)
        wanted = _linked_folders(lake.root, shown)
        stay = [folder for folder, paths in wanted if not shown.show_files(folder, layout.CONVERTED, paths)]
        shutil.rmtree(lake.root / layout.DAYS / layout.CONVERTED, ignore_errors=True)
    if not stay:
        lake.ledger.execute(_HAS_NONE, (str(lake.id),))


def retire_old_versions(lake: Lake) -> None:
    """Record the state versions in `current` as replaced, once no Iceberg table names their files."""
    if not isinstance(lake.root, Path):
        return
    with unfit(lake.root):
        found = [path for path in _versions(lake.root) if (lake.root / layout.FILES / path).exists()]
    if not found or lake.ledger.rows(_HAS_OLD_PATHS, (str(lake.id),))[0]["found"]:
        return
    known = {row["path"] for row in lake.ledger.rows(_RETIRED, (str(lake.id),))}
    for path in found:
        if path not in known:
            replaced_files.record(lake, path)


def _versions(root: Path) -> Iterator[str]:
    for dataset in sorted((root / layout.CURRENT).glob("*")):
        for found in sorted(dataset.iterdir()):
            if VERSION.fullmatch(found.name) and found.is_dir():
                yield os.path.relpath(found, root)


def _place_versions(lake: Lake, root: Path) -> None:
    """Give each version a folder below `files`. First the ledger stores that Iceberg tables must name that folder."""
    lacking = [path for path in _versions(root) if not (root / layout.FILES / path).exists()]
    if lacking:
        lake.ledger.execute(_OTHER_PATHS, (str(lake.id),))
    for path in lacking:
        made = root / layout.STAGING / f"version-{uuid.uuid4().hex}"
        made.mkdir(parents=True)
        for file in (root / path).iterdir():
            link_or_copy(file.resolve(), made / file.name)
        sync(made)
        place = root / layout.FILES / path
        place.parent.mkdir(parents=True, exist_ok=True)
        os.rename(made, place)
        sync(place.parent)


def _linked_folders(root: Path, shown: ShownFolders) -> Iterator[tuple[str, list[str]]]:
    """Yield each link, and the files that its folder will contain."""
    files = shown.files()
    for folder in list(days.find_links(root)):
        if folder.startswith(f"{layout.CURRENT}/"):
            yield folder, [os.path.relpath(file, root) for file in (root / folder).resolve().glob("*.parquet")]
        else:
            yield folder, files.get(folder, [])


def _retire_links(root: Path, shown: ShownFolders) -> None:
    """Retire links that a process exchanged, but that it did not record before it ended."""
    for folder, folders, files in os.walk(root / layout.DAYS / layout.CONVERTED):
        for name in (*folders, *files):  # read from here, the link's target may be missing, or be another file
            if (path := Path(folder) / name).is_symlink():
                shown.retire(os.path.relpath(path, root))
