"""The folders of states: a version is put in place whole, `latest` names the newest, the last few are kept.

    current/<schema>.<table>/latest            -> v00000000000000000123
    current/<schema>.<table>/v00000000000000000123/bucket-03-00000000000000000123.parquet

The number in a file's name is the seq of the version that it was written for: a bucket that did not change keeps its
name in later versions, one that did has another.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path, PurePosixPath

from lake import layout
from lake.folder import unfit
from lake.replaced import LATEST
from lake.states.folded import Folded, WrittenBucket
from lake.states.plan import BucketFile
from lake.storage.new_file import sync
from lake.storage.reading import copy
from lake.storage.where import Where


def version_name(seq: int) -> str:
    """The name of a version's folder; names sort as seqs do."""
    return f"v{seq:020d}"


def bucket_file(written: WrittenBucket, seq: int) -> BucketFile:
    """Describe a written bucket as a file of the version as of `seq`."""
    name = f"bucket-{written.bucket:02d}-{seq:020d}.parquet"
    return BucketFile(name, written.bucket, written.rows, written.bytes, written.sha256)


class States:
    """The states of one dataset, in the lake at `root`. Every OSError is raised as TargetUnfit."""

    def __init__(self, root: Path, dataset: str) -> None:
        self.folder = root / layout.current(dataset)
        self._staging = root / layout.STAGING

    def version(self, seq: int) -> Path:
        """The folder of a version."""
        return self.folder / version_name(seq)

    def assemble(self, staged: Path, seq: int, folded: Folded, base: Path) -> list[BucketFile]:
        """Make `staged` the folder of a version: files just written under their names, and links to the others."""
        with unfit(staged):
            staged.mkdir(parents=True, exist_ok=True)
            return _gather(staged, seq, folded, base, _link)

    def put_in_place(self, staged: Path, seq: int) -> None:
        """Rename the whole version into the folder that readers see; `latest` is not changed yet."""
        with unfit(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            sync(self.folder.parent)
            os.rename(staged, self.version(seq))
            sync(self.folder)

    def set_latest(self, seq: int) -> None:
        """Set `latest` to that version, atomically: readers see the old version or the new one."""
        with unfit(self.folder / LATEST):
            if self.latest() == version_name(seq):
                return
            self._staging.mkdir(parents=True, exist_ok=True)
            link = self._staging / f"latest-{uuid.uuid4().hex}"
            link.symlink_to(version_name(seq))
            os.replace(link, self.folder / LATEST)
            sync(self.folder)

    def latest(self) -> str | None:
        """The name of the folder that `latest` names; None when there is none."""
        try:
            return os.readlink(self.folder / LATEST)
        except FileNotFoundError:
            return None

    def sweep(self, kept: Collection[int]) -> None:
        """Remove versions that are not among these, nor named by `latest`."""
        with unfit(self.folder):
            if not self.folder.is_dir():
                return
            names = {version_name(seq) for seq in kept} | {self.latest()}
            for found in self.folder.iterdir():
                if re.fullmatch(r"v\d{20}", found.name) and found.name not in names:
                    shutil.rmtree(found)

    def remove(self, seq: int) -> None:
        """Remove a version, if it is there, and then the folder, if it is empty."""
        with unfit(self.folder):
            if self.version(seq).is_dir():
                shutil.rmtree(self.version(seq))
            if self.folder.is_dir() and not any(self.folder.iterdir()):
                self.folder.rmdir()


def hand_over(output: Path, seq: int, folded: Folded, base: Where) -> list[BucketFile]:
    """Put files into a folder outside of the lake; they are copied, so none is linked to a file of the lake."""
    with unfit(output):
        kept = [replace(file, name=PurePosixPath(file.name).name) for file in folded.kept]
        for file, own in zip(folded.kept, kept, strict=True):
            copy(base / file.name, output / own.name)
        return [*_gather(output, seq, replace(folded, kept=[]), output, _link), *kept]


def _gather(
    folder: Path, seq: int, folded: Folded, base: Path, take: Callable[[Path, Path], object]
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


def _link(path: Path, to: Path) -> None:
    """Link a file, or copy it where the file system has no links."""
    try:
        os.link(path, to)
    except OSError:
        shutil.copyfile(path, to)
        sync(to)
