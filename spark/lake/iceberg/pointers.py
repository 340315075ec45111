"""The catalog in the pipeline database while a commit is made: tables are collected, and set by one statement later."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile, ToOutputFile
from pyiceberg.table import CommitTableResponse, StagedTable, Table
from pyiceberg.table import CreateTableTransaction as Creation
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata

from lake.iceberg.names import Identifier
from lake.iceberg.staged_io import StagedIO


class Pointers:
    """`locations`: where the metadata of each table is. `moved`: where it is to be; None where the table is to go."""

    has_renames = True

    def __init__(self, locations: Mapping[Identifier, str]) -> None:
        self._locations = locations
        self.io = StagedIO()
        self.moved: dict[Identifier, str | None] = {}
        self._read: dict[Identifier, TableMetadata] = {}

    @property
    def written(self) -> Mapping[str, bytes]:
        """The metadata files of the commit."""
        return self.io.written

    def load(self, identifier: Identifier, called: Identifier) -> Table:
        """A table as it was before this commit, which is to be called so after it."""
        location = self._locations[identifier]
        if identifier not in self._read:
            self._read[identifier] = FromInputFile.table_metadata(self.io.new_input(location))
        if called != identifier:
            self.moved.setdefault(identifier, None)
        return Table(called, self._read[identifier], location, self.io, _Collected(self))

    def create(self, identifier: Identifier, schema: Schema, location: str, properties: Mapping[str, str]) -> Creation:
        """Begin a new table."""
        metadata = new_table_metadata(
            schema, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, location, dict(properties)
        )
        return Creation(StagedTable(identifier, metadata, "", self.io, _Collected(self)))

    def drop(self, identifier: Identifier) -> None:
        """The table is to go."""
        self.moved.setdefault(identifier, None)


class _Collected(NoopCatalog):
    """What PyIceberg commits to."""

    def __init__(self, pointers: Pointers) -> None:
        super().__init__("collected")
        self._pointers = pointers

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Stage the metadata that comes of the updates, and remember where it will be."""
        before = None if isinstance(table, StagedTable) else table
        for requirement in requirements:
            requirement.validate(before.metadata if before else None)
        metadata = update_table_metadata(
            before.metadata if before else MetastoreCatalog._empty_table_metadata(),
            updates,
            enforce_validation=before is None,
            metadata_location=before.metadata_location if before else None,
        )
        number = 1 + MetastoreCatalog._parse_metadata_version(before.metadata_location) if before else 0
        places = load_location_provider(metadata.location, metadata.properties)
        location = places.new_table_metadata_file_location(number)
        ToOutputFile.table_metadata(metadata, self._pointers.io.new_output(location))
        self._pointers.moved[table.name()] = location
        return CommitTableResponse.model_validate({"metadata": metadata, "metadata-location": location})
