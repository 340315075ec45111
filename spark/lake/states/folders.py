"""Handles the folders of state versions: each is put in place as a whole, and never changes. The last few are kept.

    files/current/<schema>.<table>/v00000000000000000123/bucket-03-00000000000000000123.parquet
    current/<schema>.<table>/latest/bucket-03-00000000000000000123.parquet   the newest, for readers by glob

The number in a file's name is the seq of the version for which the file was written: a bucket that did not change keeps
its name in later versions. Earlier server versions put state versions into `current`.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path, PurePosixPath

from lake.states.fold_tasks import FoldResult, WrittenBucket
from lake.states.plan import BucketFile
from lake.storage import layout
from lake.storage.folder import unfit
from lake.storage.new_file import sync
from lake.storage.reading import copy
from lake.storage.where import LakePath

VERSION = re.compile(r"v(\d{20})")


def version_name(seq: int) -> str:
    """Return the name of a version's folder; names sort as seqs do."""
    return f"v{seq:020d}"


def bucket_file(written: WrittenBucket, seq: int) -> BucketFile:
    """Describe a written bucket as a file of the version as of `seq`."""
    name = f"bucket-{written.bucket:02d}-{seq:020d}.parquet"
    return BucketFile(name, written.bucket, written.rows, written.bytes, written.sha256)


class StateFolders:
    """The versions of one dataset's state, in the lake at `root`. Every OSError is raised as UnfitTargetError."""

    def __init__(self, root: Path, dataset: str) -> None:
        self.folder = root / layout.FILES / layout.current(dataset)
        self._folder_before = root / layout.current(dataset)

    def version(self, seq: int) -> Path:
        """Return the folder of a version. It is in `current` until a lake of an earlier server version is converted."""
        name = version_name(seq)
        before = self._folder_before / name
        return before if before.is_dir() and not (self.folder / name).exists() else self.folder / name

    def assemble(self, staged: Path, seq: int, folded: FoldResult, base: Path) -> list[BucketFile]:
        """Make `staged` the folder of a version: rename new files to their names, and link the others."""
        with unfit(staged):
            staged.mkdir(parents=True, exist_ok=True)
            return _gather_files(staged, seq, folded, base, link_or_copy)

    def put_in_place(self, staged: Path, seq: int) -> None:
        """Rename the whole version to its final place; readers by glob do not find it yet."""
        with unfit(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            sync(self.folder.parent)
            os.rename(staged, self.folder / version_name(seq))
            sync(self.folder)

    def sweep(self, kept: Collection[int]) -> None:
        """Remove versions that are not among these, and that no link names."""
        names = {version_name(seq) for seq in kept}
        latest = self._folder_before / layout.LATEST
        if latest.is_symlink():
            names.add(PurePosixPath(os.readlink(latest)).name)
        for folder in (self.folder, self._folder_before):
            with unfit(folder):
                for found in folder.iterdir() if folder.is_dir() else ():
                    if VERSION.fullmatch(found.name) and found.name not in names:
                        shutil.rmtree(found)

    def remove(self, seq: int) -> None:
        """Remove a version, if it exists, and then the folder, if it is empty."""
        for folder in (self.folder, self._folder_before):
            with unfit(folder):
                if (folder / version_name(seq)).is_dir():
                    shutil.rmtree(folder / version_name(seq))
                if folder.is_dir() and not any(folder.iterdir()):
                    folder.rmdir()


def publish_output(output: Path, seq: int, folded: FoldResult, base: LakePath) -> list[BucketFile]:
    """Put files into a folder outside of the lake. Files of the lake are copied, so no link to them remains."""
    with unfit(output):
        kept = [replace(file, name=PurePosixPath(file.name).name) for file in folded.kept]
        for file, own in zip(folded.kept, kept, strict=True):
            copy(base / file.name, output / own.name)
        return [*_gather_files(output, seq, replace(folded, kept=[]), output, link_or_copy), *kept]


def _gather_files(
    folder: Path, seq: int, folded: FoldResult, base: Path, take: Callable[[Path, Path], object]
) -> list[BucketFile]:
    files = []
    for bucket in folded.written:
        file = bucket_file(bucket, seq)
        os.rename(bucket.path, folder / file.name)
        files.append(file)
    for file in folded.kept:
        take(base / file.name, folder / file.name)
    sync(folder)
    return [*files, *folded.kept]


def link_or_copy(path: Path, to: Path) -> None:
    """Link a file under another name, or copy the file if the file system refuses a link."""
    try:
        os.link(path, to)
    except OSError:
        shutil.copyfile(path, to)
        sync(to)
