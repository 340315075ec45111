"""Sets aside the files that the ledger no longer lists, after the ledger went back with a restored log.

First readers are switched to the files that the ledger has, then all other files move to a folder that no reader uses.
No file is removed. The manifest names the jump only at the end, so after a crash the next process that opens the lake
begins again, and finishes the work.
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
from lake.iceberg.withdrawn_tables import sweep
from lake.lost import known_files as ledger_of
from lake.lost import on_disk
from lake.lost.known_files import KnownFiles, StateFiles
from lake.running import script
from lake.storage import layout
from lake.storage.identity import Lake

_MERGED = re.compile(r"(\d{20})-(\d{20})-m[\w-]+\.parquet")
_RANGE = re.compile(r"(\d{20})-(\d{20})[\w-]*\.parquet")


@dataclass(frozen=True)
class LostFiles:
    """Differences between a lake and its ledger.

    `files`: files of changes, and versions of states, that the ledger does not list. `gone`: versions that the ledger
    lists and that do not exist. `versions`: schema versions of the manifest, by dataset.
    """

    files: Collection[str]
    gone: Collection[StateFiles]
    versions: Mapping[str, Collection[int]]


def set_aside_lost(lake: Lake, jump: int) -> None:
    """Set aside the files that the ledger lost because the log was restored, before it jumped to that seq.

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
        on_disk.switch_readers(lake, lake.root, known, ledger_of.newest_versions(lake), jump - 1)
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
    """Return versions of states in a bucket that only the manifest knows."""
    known_parts = {layout.state_part(each.dataset, each.id) for each in known.states}
    parts = (state.get("part") for state in head.get("current", {}).values())
    return [part for part in parts if part and part not in known_parts]


def _find_merged(missing: Collection[str], files: Collection[str]) -> str | None:
    """Return a missing file that was merged into a file that the ledger does not list; None if there is none."""
    merged = [(str(PurePosixPath(path).parent), found) for path in files if (found := _MERGED.search(path))]
    for path in sorted(missing):
        if one := _RANGE.search(path):
            for folder, found in merged:
                if path.startswith(f"{folder}/") and found[1] <= one[1] and one[2] <= found[2]:
                    return path
    return None


def _lacks_metadata(lake: Lake) -> bool:
    """Return True if the ledger names Iceberg metadata that was replaced and removed after the restored state."""
    base = f"file://{lake.root}/" if isinstance(lake.root, Path) else f"{lake.root}/"
    at = (table.location for table in IcebergLedger(lake).tables() if table.location)
    return bool(lake.folder.missing(each.removeprefix(base) for each in at if each.startswith(base)))


def _record(lake: Lake, path: str, lost: LostFiles) -> None:
    """Keep a copy of the manifest with the files that are set aside, unless an interrupted run has made it already."""
    if lake.folder.read(path) is None:
        content = {**LakeManifest(lake).head(), "set_aside": sorted(lost.files)}
        lake.folder.write(path, json.dumps(content, indent=1, ensure_ascii=False).encode())


def _withdraw_iceberg(lake: Lake, head: Mapping[str, Any], lost: LostFiles) -> None:
    """Withdraw the Iceberg tables; the next export makes them again. A REST catalog did not go back with the ledger."""
    ledger = IcebergLedger(lake)
    if (found := ledger.read_catalog()) is None:
        return
    if found["uri"]:
        from lake.iceberg.rest import open_catalog  # PyIceberg is an extra

        catalog = open_catalog(found["catalog"], found["uri"])
        for identifier in {table.identifier for table in ledger.tables()} | _manifest_identifiers(head, lost):
            catalog.drop(identifier)
    ledger.forget([])
    sweep(lake, ledger)


def _manifest_identifiers(head: Mapping[str, Any], lost: LostFiles) -> set[Identifier]:
    """Return the identifiers of the manifest's Iceberg tables."""
    of_changes = {names.of_changes(name, version) for name, each in lost.versions.items() for version in each}
    return of_changes | {names.of_current(name) for name in head.get("current", {})}
