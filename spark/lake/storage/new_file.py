"""A file that a task makes: in a folder that no reader looks into, or under a name in a bucket that no other ever has.

To a bucket it goes when it is whole. The ledger knows the name before: so what is never published is removed.
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
from lake.storage.written import ObjectOwner

_ATTEMPTS = 3
"""Each under another name: of an upload that failed nobody knows whether it was one."""


@dataclass(frozen=True)
class FileTarget:
    """Where a task puts what it makes. `owner`: on whose account it is in the ledger, if that is a bucket."""

    folder: LakePath
    owner: ObjectOwner | None = None

    def __truediv__(self, name: str) -> FileTarget:
        return FileTarget(self.folder / name, self.owner)


@dataclass(frozen=True)
class FinishedFile:
    """A file that is whole and durable. `at`: its path, or its URL."""

    at: str
    bytes: int
    sha256: str


class NewFile:
    """To be written to `path`, and then finished, unless it is discarded."""

    def __init__(self, target: FileTarget) -> None:
        self._target = target
        if isinstance(target.folder, Path):
            target.folder.mkdir(parents=True, exist_ok=True)
            self.path = target.folder / f"{uuid.uuid4().hex}.parquet"
        else:
            self.path = Path(tempfile.mkdtemp(prefix="pipeline-lake-")) / "new.parquet"

    def finish(self, name: str = "") -> FinishedFile:
        """Make it whole and durable. In a bucket it is called `name` and something that no other has.

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
        """Leave nothing of it on this machine; in a folder of the lake, whoever publishes does that."""
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
    """A new file; nothing of it is left on this machine that is not finished."""
    made = NewFile(target)
    try:
        yield made
    finally:
        made.discard()


def sha256(file: Path) -> str:
    """The SHA-256 of a file's bytes, in hex."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Make a file, or the names in a folder, durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
