"""A lake in a bucket. No two objects ever have the same name, so tasks write files directly to their final place.

Readers find only the manifest's head by a fixed name: it is one object, which one request replaces.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping

from lake.errors import FileMismatchError, UnfitTargetError
from lake.storage import layout, object_store
from lake.storage.folder import PublishedFile
from lake.storage.where import ObjectPath


class ObjectFolder:
    """A lake at `path` in a bucket, with the methods of `lake.storage.folder.DiskFolder`.

    Raises UnfitTargetError for what the store refuses.
    """

    def __init__(self, path: ObjectPath) -> None:
        self.path = path

    def read(self, path: str) -> bytes | None:
        """Return an object's content; None if there is no object. Raises UnfitTargetError."""
        return object_store.get(self.path / path)

    def identity(self) -> uuid.UUID | None:
        """Return the lake's id, from its manifest; None if there is no manifest. Raises UnfitTargetError."""
        content = self.read(layout.MANIFEST)
        if content is None:
            return None
        try:
            return uuid.UUID(json.loads(content)["lake"])
        except (ValueError, KeyError, TypeError):
            raise UnfitTargetError(
                f"{self.path / layout.MANIFEST} is not a manifest of a lake; name another PIPELINE_EXPORT_DIR"
            ) from None

    def require_writable(self) -> None:
        """Write an object, read it and remove it, before a range begins. Raises UnfitTargetError."""
        probe = self.path / layout.STAGING / f"probe-{uuid.uuid4().hex}"
        object_store.put(probe, b"\0")
        if object_store.get(probe) is None:
            raise UnfitTargetError(
                f"{probe} was written and cannot be read; name a bucket in which new objects are visible at once"
            )
        object_store.remove_all([probe])

    def require_empty(self) -> None:
        """Do nothing: the lake lists no objects, and only the manifest's name could belong to another program."""

    def move_in(self, files: Iterable[PublishedFile]) -> None:
        """Raise FileMismatchError if a file no longer exists; all files are in their final place already."""
        for file in files:
            if not self.has(file.path):
                raise FileMismatchError(f"{file.path} is no longer in the bucket")

    def move_out(self, files: Iterable[PublishedFile]) -> None:
        """Remove the files."""
        self.remove_all(file.path for file in files)

    def has(self, path: str) -> bool:
        """Return True if there is an object of that name."""
        return object_store.has(self.path / path)

    def missing(self, paths: Iterable[str]) -> set[str]:
        """Return those of the paths that have no object."""
        at = {self.path / path: path for path in paths}
        return {at[each] for each in object_store.missing(at)}

    def clear_staging(self) -> None:
        """Do nothing: the ledger knows the unfinished objects of a run (`lake.storage.written_objects`)."""

    def write(self, path: str, content: bytes) -> None:
        """Replace an object by one request, unless it has this content already. Raises UnfitTargetError."""
        if self.read(path) != content:
            object_store.put(self.path / path, content)

    def write_all(self, files: Mapping[str, bytes]) -> None:
        """Write new objects, in parallel. Raises UnfitTargetError."""
        object_store.put_all({self.path / path: content for path, content in files.items()})

    def remove_all(self, paths: Iterable[str]) -> None:
        """Remove objects, if they exist. Raises UnfitTargetError."""
        object_store.remove_all(self.path / path for path in paths)
