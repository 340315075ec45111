"""A lake in a folder on disk: reads its identity, moves files in durably one by one, writes the manifest."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from lake.errors import FileMismatchError, UnfitTargetError
from lake.storage import days, layout
from lake.storage.new_file import sha256, sync
from pyspark_sequin_events.reading import arrow_schema


class PublishedFile(Protocol):
    """A file that the ledger knows: its staged path, its path in the lake, and its checksum."""

    @property
    def staged(self) -> str | None: ...
    @property
    def path(self) -> str: ...
    @property
    def sha256(self) -> str: ...


class DiskFolder:
    """A lake at `path`. Every OSError is raised as UnfitTargetError, which names the path and the reason."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, path: str) -> bytes | None:
        """Return a file's content; None if there is no file. Raises UnfitTargetError."""
        with unfit(self.path / path):
            try:
                return (self.path / path).read_bytes()
            except FileNotFoundError:
                return None

    def identity(self) -> uuid.UUID | None:
        """Return the lake's id, from its manifest; None for a new or empty folder. Raises UnfitTargetError."""
        manifest = self.path / layout.MANIFEST
        with unfit(manifest):
            try:
                return uuid.UUID(json.loads(manifest.read_bytes())["lake"])
            except FileNotFoundError:
                return None
            except (ValueError, KeyError, TypeError):
                raise UnfitTargetError(
                    f"{manifest} is not a manifest of a lake; name another PIPELINE_EXPORT_DIR"
                ) from None

    def require_writable(self) -> None:
        """Try to write to the folder, before a range begins. Raises UnfitTargetError."""
        staging = self.path / layout.STAGING
        with unfit(self.path):
            staging.mkdir(parents=True, exist_ok=True)
            probe = staging / f"probe-{uuid.uuid4().hex}"
            probe.write_bytes(b"\0" * 4096)
            probe.unlink()

    def require_empty(self) -> None:
        """Raise UnfitTargetError unless the new lake's folder is empty, or contains only other lakes."""
        with unfit(self.path):
            held = list(self.path.iterdir()) if self.path.exists() else []
            ours = [entry for entry in held if entry.name == layout.STAGING or (entry / layout.MANIFEST).is_file()]
            found = sorted(entry.name for entry in held if entry not in ours)
        if found:
            raise UnfitTargetError(
                f"{self.path} holds {found[0]}, which is not ours; name an empty PIPELINE_EXPORT_DIR"
            )

    def move_in(self, files: Iterable[PublishedFile]) -> None:
        """Move staged files to their places; files that are already there stay.

        Raises FileMismatchError if a file no longer exists.
        """
        folders = set()
        for file in files:
            staged, place = self.path / (file.staged or file.path), self.path / file.path
            with unfit(place):
                place.parent.mkdir(parents=True, exist_ok=True)
                folders |= {self.path / parent for parent in Path(file.path).parents}
                try:
                    staged.rename(place)
                except FileNotFoundError as error:
                    if not self.holds(file):
                        raise FileMismatchError(f"{file.path} is neither staged nor in its place") from error
                folders |= days.show(self.path, file.path)
        for folder in folders:
            sync(folder)

    def move_out(self, files: Iterable[PublishedFile]) -> None:
        """Remove the files that `move_in` put in place."""
        for file in files:
            days.hide(self.path, file.path)
            (self.path / file.path).unlink(missing_ok=True)

    def holds(self, file: PublishedFile) -> bool:
        """Return True if a published file is in place, byte for byte."""
        try:
            return sha256(self.path / file.path) == file.sha256
        except FileNotFoundError:
            return False

    def missing(self, paths: Iterable[str]) -> set[str]:
        """Return those of the paths that do not exist."""
        return {path for path in paths if not (self.path / path).exists()}

    def remove_all(self, paths: Iterable[str]) -> None:
        """Remove files, and folders with their content, if they exist. Raises UnfitTargetError."""
        for path in paths:
            place = self.path / path
            with unfit(place):
                if place.is_dir() and not place.is_symlink():
                    days.remove_folder(self.path, path)
                else:
                    place.unlink(missing_ok=True)
                    if path.startswith(f"{layout.CURRENT}/"):
                        days.remove_empty(self.path, path)

    def clear_staging(self) -> None:
        """Remove the files of exports that did not finish."""
        shutil.rmtree(self.path / layout.STAGING, ignore_errors=True)

    def write(self, path: str, content: bytes) -> None:
        """Replace a file atomically and durably, unless it has this content already. Raises UnfitTargetError."""
        place = self.path / path
        with unfit(place):
            if place.exists() and place.read_bytes() == content:
                return
            place.parent.mkdir(parents=True, exist_ok=True)
            new = self.path / layout.STAGING / f"{uuid.uuid4().hex}.new"
            new.parent.mkdir(parents=True, exist_ok=True)
            new.write_bytes(content)
            sync(new)
            new.replace(place)
            sync(place.parent)

    def write_all(self, files: Mapping[str, bytes]) -> None:
        """Replace several files, each as `write` does."""
        for path, content in files.items():
            self.write(path, content)


def schema_content(columns: Mapping[str, str]) -> bytes:
    """Return the content of `layout.schema_file`: the columns, and the date of the folders."""
    sink = pa.BufferOutputStream()
    pq.write_metadata(arrow_schema({**columns, "date": "date"}), sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content


@contextmanager
def unfit(path: Path, remedy: str = "fix this, or name another PIPELINE_EXPORT_DIR") -> Iterator[None]:
    """Turn every OSError into UnfitTargetError, which names the path, the reason and the remedy."""
    try:
        yield
    except OSError as error:
        raise UnfitTargetError(f"{path}: {error.strerror or error}; {remedy}") from error
