"""Finds the lake in a folder: its manifest names the lake, and the ledger of one pipeline database knows it."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from lake.errors import UnfitTargetError, lost_lake_error, missing_jump_error
from lake.ledger import LakeLedger
from lake.storage import layout, where
from lake.storage.exchange import refusal
from lake.storage.folder import DiskFolder, unfit
from lake.storage.new_file import FileTarget
from lake.storage.object_folder import ObjectFolder
from lake.storage.where import LakePath, ObjectPath
from lake.storage.written_objects import ObjectOwner

LakeFolder = DiskFolder | ObjectFolder


def folder_at(text: str) -> LakeFolder:
    """Return the lake's folder on disk, or in a bucket. Raises UnfitTargetError for another text."""
    at = where.parse(text)
    return ObjectFolder(at) if isinstance(at, ObjectPath) else DiskFolder(at)


@dataclass(frozen=True)
class Lake:
    """A folder with its ledger. Once it is locked, no other exporter writes to it while the ledger's session lives."""

    id: uuid.UUID
    folder: LakeFolder
    ledger: LakeLedger
    events_table: str

    @property
    def root(self) -> LakePath:
        """The root of every path in the lake: an absolute path, or a prefix in a bucket."""
        return self.folder.path.absolute()

    @cached_property
    def exchange_refusal(self) -> str | None:
        """The reason why a test could not exchange two folders; None: it could. Raises UnfitTargetError."""
        assert isinstance(self.root, Path)  # noqa: S101  in a bucket there are no folders
        with unfit(self.root):
            found = refusal(self.root / layout.STAGING)
        self.ledger.store_exchange_refusal(self.id, found)
        return found

    def target(self, staging: str, *, export: int = 0, state: int = 0) -> FileTarget:
        """Return the target of an export's or a state version's files; on a disk, it is the folder `staging`."""
        if isinstance(self.root, ObjectPath):
            return FileTarget(self.root, ObjectOwner(self.ledger.dsn, str(self.id), self.root, export, state))
        return FileTarget(self.root / staging)


def identify(ledger: LakeLedger, folder: LakeFolder, events_table: str) -> Lake:
    """Find the lake in `folder`, or make one if it is empty. Raises UnfitTargetError if the folder is not ours."""
    known = ledger.lakes()
    directory = str(folder.path.absolute())
    found = folder.identity()
    if found is None:
        here = [lake for lake, row in known.items() if row["directory"] == directory]
        found = here[0] if here else None
        if found is None or not ledger.exported_upto(found):
            folder.require_empty()
        elif isinstance(folder, ObjectFolder):  # for a folder on disk, the server reports that
            raise lost_lake_error(directory)
        found = found or ledger.add_lake(directory, events_table)
        known = ledger.lakes()
    if found not in known and _was_lost(ledger, folder, events_table):
        ledger.add_lake(directory, events_table, found)
        known = ledger.lakes()
    if found not in known:
        raise UnfitTargetError(
            f"{directory} is the lake of another pipeline database, or of this one before it was restored; "
            "name another PIPELINE_EXPORT_DIR"
        )
    if known[found]["events_table"] != events_table:
        raise UnfitTargetError(
            f"{directory} holds exports of {known[found]['events_table']}, not of {events_table}; "
            "name another PIPELINE_EXPORT_DIR"
        )
    if known[found]["directory"] != directory:
        ledger.store_directory(found, directory)
    return Lake(found, folder, ledger, events_table)


def _was_lost(ledger: LakeLedger, folder: LakeFolder, events_table: str) -> bool:
    """Return True if the lake is newer than the state to which this pipeline database was restored, and the log jumped.

    Raises UnfitTargetError until the log has jumped.
    """
    head = json.loads(folder.read(layout.MANIFEST) or b"{}")
    if not head.get("pipeline") or (head["pipeline"], head["events_table"]) != (ledger.pipeline(), events_table):
        return False
    if ledger.waits_for_jump():
        raise missing_jump_error(folder.path)
    return bool(max(head["jump"], head["exported_upto"]) < ledger.newest_jump(events_table))


def open_for_reading(ledger: LakeLedger, folder: LakeFolder) -> Lake:
    """Open the lake in `folder`, for reading without its lock.

    Raises UnfitTargetError if it is not a lake of this database, or if this server version has not exported to it yet.
    """
    found, known = folder.identity(), ledger.lakes()
    if found is None or found not in known:
        raise UnfitTargetError(f"{folder.path} is not a lake of this pipeline database; correct PIPELINE_EXPORT_DIR")
    if ledger.is_from_older_version(found):
        raise UnfitTargetError(
            f"the last export to {folder.path} was by an older version of the server; run `pipeline export run` once"
        )
    return Lake(found, folder, ledger, known[found]["events_table"])
