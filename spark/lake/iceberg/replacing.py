"""Makes a snapshot whose files replace all files of a table, or some of them.

PyIceberg's overwrite keeps the lists of deleted files forever: a table that is replaced at each run would grow.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Transaction
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _SnapshotProducer


class ReplacingSnapshot(_SnapshotProducer["ReplacingSnapshot"]):
    """A snapshot that lists the files that it deletes, for readers of single snapshots, and no older deletions."""

    _paths: frozenset[str] | None = None
    """The paths of the files that the snapshot deletes; None: all files."""
    _known: dict[str, list[ManifestEntry]]
    """The entries that were read, by the path of their manifest."""

    @classmethod
    def all_files(cls, transaction: Transaction, io: FileIO, summary: Mapping[str, str]) -> ReplacingSnapshot:
        """Begin a snapshot that deletes all files of the previous one."""
        return cls._begin(transaction, io, summary, None)

    @classmethod
    def files(
        cls, transaction: Transaction, io: FileIO, summary: Mapping[str, str], locations: Collection[str]
    ) -> ReplacingSnapshot:
        """Begin a snapshot that deletes these files. Raises ValueError if the previous snapshot lacks any of them."""
        made = cls._begin(transaction, io, summary, frozenset(locations))
        if lacking := len(locations) - len(made._deleted_data_files):
            raise ValueError(f"{lacking} of {len(locations)} files that were merged are not in the table")
        return made

    @classmethod
    def _begin(
        cls, transaction: Transaction, io: FileIO, summary: Mapping[str, str], paths: frozenset[str] | None
    ) -> ReplacingSnapshot:
        made = cls(Operation.OVERWRITE, transaction, io, snapshot_properties=dict(summary))
        made._paths, made._known = paths, {}
        for entry in made._gone():
            made.delete_data_file(entry.data_file)
        return made

    def _before(self) -> list[ManifestFile]:
        snapshot = self._transaction.table_metadata.current_snapshot()
        return snapshot.manifests(self._io) if snapshot else []

    def _gone(self) -> list[ManifestEntry]:
        return [entry for manifest in self._before() for entry in self._entries(manifest) if self._goes(entry)]

    def _entries(self, manifest: ManifestFile) -> list[ManifestEntry]:
        """Read the entries of a manifest once: they are needed three times, and may be in a bucket."""
        path = manifest.manifest_path
        if path not in self._known:
            self._known[path] = manifest.fetch_manifest_entry(self._io)
        return self._known[path]

    def _goes(self, entry: ManifestEntry) -> bool:
        return self._paths is None or entry.data_file.file_path in self._paths

    def _deleted_entries(self) -> list[ManifestEntry]:
        return [self._again(entry, ManifestEntryStatus.DELETED, self._snapshot_id) for entry in self._gone()]

    def _existing_manifests(self) -> list[ManifestFile]:
        """Return manifests of files that stay: unchanged, or written again without deleted files."""
        if self._paths is None:
            return []
        found = []
        for manifest in self._before():
            entries = self._entries(manifest)
            stay = [entry for entry in entries if not self._goes(entry)]
            if stay and len(stay) == len(entries):
                found.append(manifest)
            elif stay:
                with self.new_manifest_writer(self.spec(manifest.partition_spec_id)) as writer:
                    for entry in stay:
                        writer.add_entry(self._again(entry, ManifestEntryStatus.EXISTING, entry.snapshot_id))
                found.append(writer.to_manifest_file())
        return found

    @staticmethod
    def _again(entry: ManifestEntry, status: ManifestEntryStatus, snapshot: int | None) -> ManifestEntry:
        return ManifestEntry.from_args(
            status=status,
            snapshot_id=snapshot,
            sequence_number=entry.sequence_number,
            file_sequence_number=entry.file_sequence_number,
            data_file=entry.data_file,
        )
