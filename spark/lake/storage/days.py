"""Handles the folders that readers list: days, and current states of tables. They contain second names of files.

The files themselves are elsewhere, under paths that never change. The content of such a folder is replaced as a whole:
a new folder is made, and the two are exchanged. So a reader that lists the folder finds either the old or the new
files.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

from lake.storage import layout
from lake.storage.exchange import exchange
from lake.storage.new_file import sync


class ExchangeRefusedError(Exception):
    """The file system cannot exchange a folder; the text has the reason. Nothing has changed."""


def show(root: Path, path: str) -> set[Path]:
    """Give a file a name in the folder of its day, and make that folder if it does not exist.

    Returns the folders that the caller must make durable.
    """
    folder = layout.day(path)
    if folder is None:
        return set()
    place = root / folder
    place.mkdir(parents=True, exist_ok=True)
    _link_file(root, root / path, place)
    return {place, place.parent, place.parent.parent}


def hide(root: Path, path: str) -> None:
    """Remove the name of a file from the folder of its day."""
    if folder := layout.day(path):
        (root / folder / Path(path).name).unlink(missing_ok=True)


def has(root: Path, folder: str, paths: Collection[str]) -> bool:
    """Return True if a folder, which is no link, has the names of these files and no others."""
    place = root / folder
    return _is_folder(place) and {entry.name for entry in os.scandir(place)} == {Path(path).name for path in paths}


def put(root: Path, folder: str, view: str, paths: Collection[str], *, by_renames: bool = False) -> None:
    """Replace `folder` by a new folder with a name of each of these files, and keep the old folder at `view`.

    That takes one step; with `by_renames`, two steps if the file system cannot exchange folders.
    Raises ExchangeRefusedError, OSError.
    """
    place, made = root / folder, root / view
    _clear(made)
    made.mkdir(parents=True)
    for path in paths:
        _link_file(root, root / path, made)
    sync(made)
    place.parent.mkdir(parents=True, exist_ok=True)
    if not os.path.lexists(place):
        os.rename(made, place)
    else:
        try:
            exchange(made, place)
        except OSError as error:
            if not by_renames:
                _clear(made)
                remove_empty(root, view)
                raise ExchangeRefusedError(error.strerror or str(error)) from error
            before = made.with_name(f"{made.name}~")
            os.rename(place, before)
            os.rename(made, place)
            os.rename(before, made)
    sync(place.parent)


def remove_folder(root: Path, path: str) -> None:
    """Remove a folder: it leaves its place in one step. If that is interrupted, the rest stays in `.staging`."""
    gone = root / layout.STAGING / f"gone-{uuid.uuid4().hex}"
    gone.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.rename(root / path, gone)
    except OSError:  # a folder in a lower layer of an overlay cannot be renamed
        shutil.rmtree(root / path)
    else:
        shutil.rmtree(gone)
    remove_empty(root, path)


def find_links(root: Path) -> Iterator[str]:
    """Return folders of days and of current states that are links, as earlier server versions made them."""
    for top in ("changes", layout.MESSAGES, layout.CURRENT):
        for folder, folders, _ in os.walk(root / top):
            found = (Path(folder) / name for name in folders if name.startswith("date=") or name == layout.LATEST)
            yield from (os.path.relpath(each, root) for each in found if each.is_symlink())


def replace_links(root: Path, folder: str) -> None:
    """Replace symbolic links to files in a folder by copies, since the files may be replaced and removed."""
    for entry in (root / folder).iterdir() if (root / folder).is_dir() else ():
        if entry.is_symlink():
            _copy_file(root, entry.resolve(), entry)


def remove_empty(root: Path, path: str) -> None:
    """Remove the parent folders of a path that are empty."""
    with suppress(OSError):
        for parent in list(PurePosixPath(path).parents)[:-2]:
            (root / parent).rmdir()


def _is_folder(place: Path) -> bool:
    return place.is_dir() and not place.is_symlink()


def _clear(view: Path) -> None:
    """Remove an unfinished folder that a crash has left."""
    if view.is_symlink():
        view.unlink()
    elif view.exists():
        shutil.rmtree(view)


def _link_file(root: Path, file: Path, folder: Path) -> None:
    """Link a file into a folder; copy the file if the file system refuses a link."""
    file = file.resolve()
    try:
        os.link(file, folder / file.name)
    except FileExistsError:
        return
    except OSError:
        _copy_file(root, file, folder / file.name)


def _copy_file(root: Path, file: Path, place: Path) -> None:
    """Copy a file so that readers who look for Parquet files find all of it or nothing."""
    copied = root / layout.STAGING / f"copy-{uuid.uuid4().hex}"
    copied.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, copied)
    sync(copied)
    os.replace(copied, place)
