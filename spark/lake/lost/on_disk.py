"""A lake in a folder: which files the ledger does not list, and how readers are led to those that it does."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from lake import days, layout
from lake.folder import unfit
from lake.iceberg import names
from lake.lost.known import Known
from lake.replaced import LATEST
from lake.states.folders import States

_VERSION = re.compile(r"v(\d{20})")
_CHANGES = layout.FILES, "changes", layout.MESSAGES


def unlisted(root: Path, known: Known) -> list[str]:
    """Files of changes, of columns, and versions of states that the ledger does not know."""
    return [*_changes(root, known), *_versions(root, known)]


def _changes(root: Path, known: Known) -> Iterator[str]:
    for top in _CHANGES:
        for folder, _, files in os.walk(root / top):
            for name in files:
                path = os.path.relpath(Path(folder) / name, root)
                if name == "_common_metadata":
                    is_known = path in known.schemas
                else:  # in folders of days that a version before has made, files have another name
                    is_known = known.knows(path) or known.knows(f"{layout.FILES}/{path}")
                if not is_known and (name.endswith(".parquet") or name == "_common_metadata"):
                    yield path


def _versions(root: Path, known: Known) -> Iterator[str]:
    folder, versions = root / layout.CURRENT, known.versions
    for dataset in sorted(folder.iterdir()) if folder.is_dir() else []:
        for found in sorted(dataset.iterdir()):
            version = _VERSION.fullmatch(found.name)
            if version and not found.is_symlink() and (dataset.name, int(version[1])) not in versions:
                yield os.path.relpath(found, root)


def lead_readers(root: Path, known: Known, latest: dict[str, int], number: int) -> None:
    """Let each day and each `latest` lead to what the ledger lists. `number`: that of folders of days."""
    with unfit(root):
        for dataset in sorted((root / layout.CURRENT).glob("*")):
            if dataset.name in latest:
                States(root, dataset.name).set_latest(latest[dataset.name])
            else:
                (dataset / LATEST).unlink(missing_ok=True)
        listed: dict[str, list[str]] = {}
        for path in known.listed:
            if (folder := layout.day(path)) and (root / path).exists():
                listed.setdefault(folder, []).append(path)
        for folder in sorted({*_links(root), *listed}):
            if days.is_link(root, folder) or not (root / folder).exists():
                wanted = listed.get(folder, [])
                if _names(root / folder) != {Path(path).name for path in wanted}:
                    days.rebuild(root, folder, number, wanted)


def _links(root: Path) -> Iterator[str]:
    """Folders of days that are links."""
    for top in ("changes", layout.MESSAGES):
        for folder, folders, _ in os.walk(root / top):
            paths = (os.path.relpath(Path(folder) / name, root) for name in folders)
            yield from (path for path in paths if days.is_link(root, path))


def _names(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()} if folder.is_dir() else set()


def left_over(root: Path, known: Known, parts: Iterable[str], *, iceberg: bool) -> list[str]:
    """What readers were led to before: folders of days, parts of the manifest, with `iceberg` all its metadata."""
    shown = {days.shown(root, folder) for folder in _links(root)}
    found = [
        path
        for folder, folders, _ in os.walk(root / layout.DAYS)
        for name in folders
        if (path := os.path.relpath(Path(folder) / name, root)) not in shown
        and name.startswith("date=")
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
    """Move files and folders into `folder`, under the names that they have in the lake. Raises TargetUnfit."""
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
