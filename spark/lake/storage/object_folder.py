"""A lake in a bucket. Its files have names that no other ever has, so they are written where they belong, at once.

What readers find by a name that stays is the manifest's head alone, which is one object, replaced by one request.
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
        """An object's content; None when there is none. Raises UnfitTargetError."""
        return object_store.get(self.path / path)

    def identity(self) -> uuid.UUID | None:
        """The lake's id, from its manifest; None where there is none. Raises UnfitTargetError."""
        content = self.read(layout.MANIFEST)
        if content is None:
            return None
        try:
            return uuid.UUID(json.loads(content)["lake"])
        except (ValueError, KeyError, TypeError):
            raise UnfitTargetError(
                f"{self.path / layout.MANIFEST} is not a manifest of ours; name another PIPELINE_EXPORT_DIR"
            ) from None

    def require_writable(self) -> None:
        """Write an object, read it and remove it, before a range is begun. Raises UnfitTargetError."""
        probe = self.path / layout.STAGING / f"probe-{uuid.uuid4().hex}"
        object_store.put(probe, b"\0")
        if object_store.get(probe) is None:
            raise UnfitTargetError(f"{probe} was written and cannot be read; name a bucket that shows what was written")
        object_store.remove_all([probe])

    def require_empty(self) -> None:
        """Does nothing: without listing nobody knows, and no name of ours is anybody else's but the manifest's."""

    def move_in(self, files: Iterable[PublishedFile]) -> None:
        """Raises FileMismatchError when a file no longer exists; they are where they belong already."""
        for file in files:
            if not self.has(file.path):
                raise FileMismatchError(f"{file.path} is not in the bucket any more")

    def move_out(self, files: Iterable[PublishedFile]) -> None:
        """Remove them."""
        self.remove_all(file.path for file in files)

    def has(self, path: str) -> bool:
        """Whether there is an object of that name."""
        return object_store.has(self.path / path)

    def missing(self, paths: Iterable[str]) -> set[str]:
        """Those of these paths where there is no object."""
        at = {self.path / path: path for path in paths}
        return {at[each] for each in object_store.missing(at)}

    def clear_staging(self) -> None:
        """Does nothing: what a run leaves unfinished the ledger knows (`lake.storage.written`)."""

    def write(self, path: str, content: bytes) -> None:
        """Replace an object by one request, unless its content is the same already. Raises UnfitTargetError."""
        if self.read(path) != content:
            object_store.put(self.path / path, content)

    def write_all(self, files: Mapping[str, bytes]) -> None:
        """Write objects that are new, side by side. Raises UnfitTargetError."""
        object_store.put_all({self.path / path: content for path, content in files.items()})

    def remove_all(self, paths: Iterable[str]) -> None:
        """Remove objects, those that are there. Raises UnfitTargetError."""
        object_store.remove_all(self.path / path for path in paths)
