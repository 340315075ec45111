"""A lake of which the ledger went back with a restored log: what it no longer lists is set aside.

Readers are led to what the ledger has, then all else moves to a folder into which no reader looks. Nothing is removed.
The manifest says last of all that it knows of the jump, so whoever opens the lake after a crash does it again, and does
what is left.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from lake.changes.manifest import LakeManifest
from lake.errors import UnfitTargetError
from lake.iceberg import names
from lake.iceberg.ledger import IcebergLedger
from lake.iceberg.names import Identifier
from lake.iceberg.withdrawn import sweep
from lake.lost import known as ledger_of
from lake.lost import on_disk
from lake.lost.known import KnownFiles, StateFiles
from lake.running import script
from lake.storage import layout
from lake.storage.identity import Lake

_MERGED = re.compile(r"(\d{20})-(\d{20})-m[\w-]+\.parquet")
_RANGE = re.compile(r"(\d{20})-(\d{20})[\w-]*\.parquet")


@dataclass(frozen=True)
class LostFiles:
    """`files`: those of changes, and versions of states, that the ledger does not list. `gone`: versions that it
    lists, and that are not there. `versions`: schema versions that the manifest has, by dataset."""

    files: Collection[str]
    gone: Collection[StateFiles]
    versions: Mapping[str, Collection[int]]


def set_aside_lost(lake: Lake, jump: int) -> None:
    """Bring the lake to what its ledger has, which may have gone back before the log jumped to that seq.

    The lake's lock must be held. Raises UnfitTargetError if files that the ledger lists are gone.
    """
    known, manifest = ledger_of.read_known_files(lake), LakeManifest(lake)
    lost = _find_lost(lake, known, manifest)
    is_iceberg_lost = bool(lost.files or lost.gone) or _lacks_metadata(lake)
    if not is_iceberg_lost and manifest.matches_ledger():
        return
    folder = layout.set_aside(jump)
    _record(lake, f"{folder}/{layout.MANIFEST}", lost)
    if is_iceberg_lost:
        _withdraw_iceberg(lake, manifest.head(), lost)
    if lost.gone:
        ledger_of.forget_versions(lake, lost.gone)
    if isinstance(lake.root, Path):
        on_disk.lead_readers(lake, lake.root, known, ledger_of.newest_versions(lake), jump - 1)
    manifest.relist(jump - 1)
    if isinstance(lake.root, Path):
        parts = manifest.parts().values()
        others = on_disk.find_left_over(lake.root, known, parts, iceberg=is_iceberg_lost)
        gone = [str(PurePosixPath(file).parent) for each in lost.gone for file in each.files[:1]]
        on_disk.move(lake.root, [*others, *gone, *lost.files], folder)
    script.print_event("set_aside", jump=jump, files=len(lost.files), folder=f"{lake.root}/{folder}")


def _find_lost(lake: Lake, known: KnownFiles, manifest: LakeManifest) -> LostFiles:
    listed, versions = manifest.listed()
    if isinstance(lake.root, Path):
        files = on_disk.find_unlisted(lake.root, known)
    else:
        files = [path for path in listed if not known.knows(path)] + _lost_states(known, manifest.head())
    missing = lake.folder.missing(path for path in known.listed if path not in listed)
    if merged := _find_merged(missing, files):
        raise UnfitTargetError(
            f"{lake.root} lacks files that the ledger lists, such as {merged}: they were merged and removed after the "
            "state to which the pipeline database was restored; name another PIPELINE_EXPORT_DIR, an empty folder, to "
            "begin a new lake"
        )
    if not files:
        return LostFiles((), (), versions)
    committed = [each for each in known.states if each.is_committed]
    without = lake.folder.missing(file for each in committed for file in each.files)
    return LostFiles(files, [each for each in committed if not without.isdisjoint(each.files)], versions)


def _lost_states(known: KnownFiles, head: Mapping[str, Any]) -> list[str]:
    """Versions of states in a bucket that only the manifest knows."""
    there = {layout.state_part(each.dataset, each.id) for each in known.states}
    parts = (state.get("part") for state in head.get("current", {}).values())
    return [part for part in parts if part and part not in there]


def _find_merged(missing: Collection[str], files: Collection[str]) -> str | None:
    """One of the missing files that has become a part of a merged file that the ledger does not list."""
    merged = [(str(PurePosixPath(path).parent), found) for path in files if (found := _MERGED.search(path))]
    for path in sorted(missing):
        if one := _RANGE.search(path):
            for folder, found in merged:
                if path.startswith(f"{folder}/") and found[1] <= one[1] and one[2] <= found[2]:
                    return path
    return None


def _lacks_metadata(lake: Lake) -> bool:
    """Whether the metadata of an Iceberg table was replaced and removed after the state that was restored."""
    base = f"file://{lake.root}/" if isinstance(lake.root, Path) else f"{lake.root}/"
    at = (table.location for table in IcebergLedger(lake).tables() if table.location)
    return bool(lake.folder.missing(each.removeprefix(base) for each in at if each.startswith(base)))


def _record(lake: Lake, path: str, lost: LostFiles) -> None:
    """Keep the manifest as it was, with the files that are set aside; what a crash has left is there already."""
    if lake.folder.read(path) is None:
        content = {**LakeManifest(lake).head(), "set_aside": sorted(lost.files)}
        lake.folder.write(path, json.dumps(content, indent=1, ensure_ascii=False).encode())


def _withdraw_iceberg(lake: Lake, head: Mapping[str, Any], lost: LostFiles) -> None:
    """The next export makes all Iceberg tables again: a REST catalog did not go back, and snapshots may lack files."""
    book = IcebergLedger(lake)
    if (found := book.read_catalog()) is None:
        return
    if found["uri"]:
        from lake.iceberg.rest import open_catalog  # PyIceberg is an extra

        catalog = open_catalog(found["catalog"], found["uri"])
        for identifier in {table.identifier for table in book.tables()} | _manifest_identifiers(head, lost):
            catalog.drop(identifier)
    book.forget([])
    sweep(lake, book)


def _manifest_identifiers(head: Mapping[str, Any], lost: LostFiles) -> set[Identifier]:
    """What Iceberg tables of the manifest are called."""
    of_changes = {names.of_changes(name, version) for name, each in lost.versions.items() for version in each}
    return of_changes | {names.of_current(name) for name in head.get("current", {})}
