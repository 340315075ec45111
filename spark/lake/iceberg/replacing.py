"""A snapshot whose files take the place of all that were there before.

PyIceberg's own overwrite keeps the lists of what it deleted for ever: a table that is replaced at each run would grow.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Transaction
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _SnapshotProducer


class Replacing(_SnapshotProducer["Replacing"]):
    """Lists what it deletes, for readers of single snapshots, and nothing that is older."""

    @classmethod
    def all_files(cls, transaction: Transaction, io: FileIO, summary: Mapping[str, str]) -> Replacing:
        """Begin a snapshot that deletes all files of the one before."""
        made = cls(Operation.OVERWRITE, transaction, io, snapshot_properties=dict(summary))
        for entry in made._before():
            made.delete_data_file(entry.data_file)
        return made

    def _before(self) -> list[ManifestEntry]:
        snapshot = self._transaction.table_metadata.current_snapshot()
        manifests = snapshot.manifests(self._io) if snapshot else []
        return [entry for manifest in manifests for entry in manifest.fetch_manifest_entry(self._io)]

    def _deleted_entries(self) -> list[ManifestEntry]:
        return [
            ManifestEntry.from_args(
                status=ManifestEntryStatus.DELETED,
                snapshot_id=self._snapshot_id,
                sequence_number=entry.sequence_number,
                file_sequence_number=entry.file_sequence_number,
                data_file=entry.data_file,
            )
            for entry in self._before()
        ]

    def _existing_manifests(self) -> list[ManifestFile]:
        return []
