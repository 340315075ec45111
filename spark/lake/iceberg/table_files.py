"""Finds the metadata files of an Iceberg table, to remove them from a bucket, where the lake lists no objects."""

from __future__ import annotations

from pyiceberg.table import Table


def files_of(table: Table) -> list[str]:
    """Return the locations of a table's metadata, of the manifest lists of its snapshots, and of the manifests."""
    snapshots = table.metadata.snapshots
    manifests = {manifest.manifest_path for snapshot in snapshots for manifest in snapshot.manifests(table.io)}
    return [table.metadata_location, *(snapshot.manifest_list for snapshot in snapshots), *sorted(manifests)]
