"""Makes a task's files: in a folder that no reader uses, or in a bucket under a name that no other object ever has.

A file is uploaded to a bucket when it is complete. The ledger knows the name before, so that objects which are never
published can be removed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lake.storage import object_store
from lake.storage.where import LakePath, ObjectPath
from lake.storage.written_objects import ObjectOwner

_ATTEMPTS = 3
"""Attempts to upload a file, each under another name, since an upload that failed may still have made an object."""


@dataclass(frozen=True)
class FileTarget:
    """The folder where a task puts its files. `owner`: in a bucket, the owner of the objects in the ledger."""

    folder: LakePath
    owner: ObjectOwner | None = None

    def __truediv__(self, name: str) -> FileTarget:
        return FileTarget(self.folder / name, self.owner)


@dataclass(frozen=True)
class FinishedFile:
    """A file that is complete and durable. `at`: its path, or its URL."""

    at: str
    bytes: int
    sha256: str


class NewFile:
    """A new file that the caller writes to `path`, and then finishes or discards."""

    def __init__(self, target: FileTarget) -> None:
        self._target = target
        if isinstance(target.folder, Path):
            target.folder.mkdir(parents=True, exist_ok=True)
            self.path = target.folder / f"{uuid.uuid4().hex}.parquet"
        else:
            self.path = Path(tempfile.mkdtemp(prefix="pipeline-lake-")) / "new.parquet"

    def finish(self, name: str = "") -> FinishedFile:
        """Complete the file and make it durable. In a bucket, its name is `name` and a unique suffix.

        Raises OSError, UnfitTargetError.
        """
        folder, size, digest = self._target.folder, self.path.stat().st_size, sha256(self.path)
        if isinstance(folder, Path):
            sync(self.path)
            return FinishedFile(str(self.path), size, digest)
        try:
            return FinishedFile(str(self._uploaded(folder, name)), size, digest)
        finally:
            self.discard()

    def discard(self) -> None:
        """Remove local remains of a file for a bucket; in a folder of the lake, the exporter removes them."""
        if isinstance(self._target.folder, ObjectPath):
            shutil.rmtree(self.path.parent, ignore_errors=True)

    def _uploaded(self, folder: ObjectPath, name: str) -> ObjectPath:
        for attempt in range(1, _ATTEMPTS + 1):
            at = folder / f"{name}{'-' if name else ''}{uuid.uuid4().hex}.parquet"
            if self._target.owner is not None:
                self._target.owner.record(at)
            try:
                object_store.upload(self.path, at)
            except OSError:
                if attempt == _ATTEMPTS:
                    with object_store.unfit_store(at):
                        raise
            else:
                return at
        raise AssertionError("the last attempt returns or raises")


@contextmanager
def new_file(target: FileTarget) -> Iterator[NewFile]:
    """Make a new file, and remove its local remains after the block."""
    made = NewFile(target)
    try:
        yield made
    finally:
        made.discard()


def sha256(file: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hex."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Make a file, or the names in a folder, durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
