"""Finds files on a disk that the ledger does not list, and switches readers to the files that it lists."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from lake.iceberg import names
from lake.lost.known_files import KnownFiles
from lake.shown_folders import ShownFolders
from lake.states.folders import VERSION
from lake.storage import days, layout
from lake.storage.folder import unfit
from lake.storage.identity import Lake

_SHOWN = "changes", layout.MESSAGES
_FILES = tuple(f"{layout.FILES}/{top}" for top in _SHOWN)
_VERSIONS = layout.CURRENT, f"{layout.FILES}/{layout.CURRENT}"


def find_unlisted(root: Path, known: KnownFiles) -> list[str]:
    """Return files of changes and of columns, and versions of states, that the ledger does not know."""
    return [*_changes(root, known), *_versions(root, known)]


def _changes(root: Path, known: KnownFiles) -> Iterator[str]:
    fixed = _fixed(known)
    for top in (*_FILES, *_SHOWN):
        for folder, _, files in os.walk(root / top):
            for name in files:
                path = os.path.relpath(Path(folder) / name, root)
                if name == "_common_metadata":
                    is_known = path in known.schemas
                elif top in _FILES:
                    is_known = known.knows(path)
                else:  # a second name of a file, or the only name if an earlier server version wrote it
                    is_known = known.knows(path) or known.knows(file := f"{layout.FILES}/{path}")
                    is_known |= (root / file).exists() and os.path.dirname(path) not in fixed
                if not is_known and (name.endswith(".parquet") or name == "_common_metadata"):
                    yield path


def _fixed(known: KnownFiles) -> set[str]:
    """Return folders of days that hold the only path of a file."""
    return {path.rpartition("/")[0] for path in known.listed if layout.day(path) is None}


def _versions(root: Path, known: KnownFiles) -> Iterator[str]:
    versions = known.versions
    for top in _VERSIONS:
        for dataset in sorted((root / top).glob("*")):
            for found in sorted(dataset.iterdir()):
                is_version = VERSION.fullmatch(found.name) and not found.is_symlink()
                if is_version and (dataset.name, int(found.name[1:])) not in versions:
                    yield os.path.relpath(found, root)


def switch_readers(lake: Lake, root: Path, known: KnownFiles, latest: dict[str, int], number: int) -> None:
    """Switch each day and each `latest` to the files that the ledger lists. `number`: names the new folders.

    If the file system cannot exchange folders, a day takes two renames, and does not exist between the two.
    """
    shown = ShownFolders(lake)
    for dataset in sorted((root / layout.CURRENT).glob("*")):
        if dataset.name in latest:
            shown.set_latest(dataset.name, latest[dataset.name])
        else:
            lake.folder.remove_all([layout.latest(dataset.name)])
    listed: dict[str, list[str]] = {}
    for path in known.listed:
        if folder := layout.day(path):
            listed.setdefault(folder, []).append(path)
    for folder in sorted({*_days(root), *listed} - _fixed(known)):
        if folder in listed:
            shown.show_files(folder, number, listed[folder], by_renames=True)
        else:
            lake.folder.remove_all([folder])


def _days(root: Path) -> Iterator[str]:
    for top in _SHOWN:
        for folder, folders, _ in os.walk(root / top):
            yield from (os.path.relpath(Path(folder) / name, root) for name in folders if name.startswith("date="))


def find_left_over(root: Path, known: KnownFiles, parts: Iterable[str], *, iceberg: bool) -> list[str]:
    """Return paths that readers used before: folders of days, parts of the manifest; with `iceberg`, all metadata."""
    real = os.path.realpath(root)
    shown = {os.path.relpath(os.path.realpath(root / folder), real) for folder in days.find_links(root)}
    found = [
        path
        for folder, folders, _ in os.walk(root / layout.DAYS)
        for name in folders
        if (path := os.path.relpath(Path(folder) / name, root)) not in shown
        and (name.startswith("date=") or name == layout.LATEST)
        and not known.knows(path)
    ]
    named = {*parts}
    for part in (root / "manifest").rglob("*.json"):
        path = os.path.relpath(part, root)
        if path not in named and not known.knows(path):
            found.append(path)
    if iceberg:
        found += [os.path.relpath(each, root) for each in (root / names.FOLDER).glob("*/*/*")]
    return found


def move(root: Path, paths: Iterable[str], folder: str) -> None:
    """Move files and folders into `folder`, under the names that they have in the lake. Raises UnfitTargetError."""
    for path in paths:
        place, target = root / path, root / folder / path
        with unfit(place):
            target.parent.mkdir(parents=True, exist_ok=True)
            while target.is_dir():
                target = target.with_name(f"{target.name}~")
            with suppress(FileNotFoundError):
                os.rename(place, target)
        with suppress(OSError):
            for parent in list(Path(path).parents)[:-2]:
                (root / parent).rmdir()
