"""The folders of days, for readers by glob: links to folders that hold one name for each file of the day.

The files themselves are elsewhere, under names that never change. A day whose files were merged gets another folder,
and one rename sets the link to it: a glob finds the old files or the new ones, and who has resolved the link before the
query keeps the folder that it names for a while.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

from lake import layout
from lake.storage.new_file import sync


def show(root: Path, path: str) -> set[Path]:
    """Give a file a name in the folder of its day, which is made if there is none.

    Returns the folders that are still to be made durable.
    """
    folder = layout.day(path)
    if folder is None:
        return set()
    if not os.path.lexists(root / folder):
        (root / layout.day_view(folder, 0)).mkdir(parents=True, exist_ok=True)
        (root / folder).parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            (root / folder).symlink_to(_target(folder, 0))
    view = (root / folder).resolve()
    _name(root / path, view)
    return {view, view.parent, (root / folder).parent}


def hide(root: Path, path: str) -> None:
    """Take the name of a file out of the folder of its day."""
    if folder := layout.day(path):
        (root / folder / Path(path).name).unlink(missing_ok=True)


def is_link(root: Path, folder: str) -> bool:
    """Whether it can be switched; folders that a version before has made cannot."""
    return (root / folder).is_symlink()


def shown(root: Path, folder: str) -> str:
    """The folder that a day's link names, as a path in the lake."""
    target = os.path.normpath(root / Path(folder).parent / os.readlink(root / folder))
    return os.path.relpath(target, root)


def switch(root: Path, folder: str, number: int, gone: Collection[str], added: Iterable[str]) -> None:
    """Set the link to a new folder, which has what the day has, without the names `gone`, and the files `added`.

    Does nothing where that was done already.
    """
    view = layout.day_view(folder, number)
    before = shown(root, folder)
    if before == view:
        return
    shutil.rmtree(root / view, ignore_errors=True)  # which a crash has left unfinished
    (root / view).mkdir(parents=True)
    for entry in os.scandir(root / before):
        if entry.name not in gone:
            _name(Path(entry.path), root / view)
    for path in added:
        _name(root / path, root / view)
    sync(root / view)
    _link(root, folder, number)


def rebuild(root: Path, folder: str, number: int, paths: Collection[str]) -> None:
    """Set the link to a new folder, which has these files and nothing else; without any there is no link any more."""
    view = root / layout.day_view(folder, number)
    if not paths:
        (root / folder).unlink(missing_ok=True)
        with suppress(OSError):
            for parent in list(Path(folder).parents)[:-2]:
                (root / parent).rmdir()
        return
    shutil.rmtree(view, ignore_errors=True)  # which a crash has left unfinished
    view.mkdir(parents=True)
    for path in paths:
        _name(root / path, view)
    sync(view)
    _link(root, folder, number)


def _link(root: Path, folder: str, number: int) -> None:
    link = root / layout.STAGING / f"day-{uuid.uuid4().hex}"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(_target(folder, number))
    (root / folder).parent.mkdir(parents=True, exist_ok=True)
    os.replace(link, root / folder)
    sync((root / folder).parent)


def remove_empty(root: Path, view: str) -> None:
    """Remove the folders that one of a day was in, as far as nothing else is."""
    path = Path(view)
    if path.parts[0] == layout.DAYS:
        with suppress(OSError):
            for parent in list(path.parents)[:-2]:
                (root / parent).rmdir()


def _target(folder: str, number: int) -> str:
    return os.path.relpath(layout.day_view(folder, number), Path(folder).parent)


def _name(file: Path, folder: Path) -> None:
    """Another name for a file; a symbolic link where the file system has no others."""
    file = file.resolve()
    try:
        os.link(file, folder / file.name)
    except FileExistsError:
        return
    except OSError:
        with suppress(FileExistsError):
            (folder / file.name).symlink_to(os.path.relpath(file, folder))
