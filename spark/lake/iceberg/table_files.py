"""The metadata files of an Iceberg table: where nothing is listed, this is how they are found when it goes."""

from __future__ import annotations

from pyiceberg.table import Table


def files_of(table: Table) -> list[str]:
    """Locations of its metadata, of the lists of its snapshots' manifests, and of those."""
    snapshots = table.metadata.snapshots
    manifests = {manifest.manifest_path for snapshot in snapshots for manifest in snapshot.manifests(table.io)}
    return [table.metadata_location, *(snapshot.manifest_list for snapshot in snapshots), *sorted(manifests)]
