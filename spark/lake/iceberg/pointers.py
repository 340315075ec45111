"""The catalog in the pipeline database while a commit is made: tables are collected, and set by one statement later."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import cast

from pyarrow.fs import FileSystem
from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.io.pyarrow import PyArrowFileIO
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
from lake.storage.object_store import file_system
from lake.storage.where import SCHEME, ObjectPath, parse


class PointerCatalog:
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
        return Table(called, self._read[identifier], location, self.io, _CollectingCatalog(self))

    def create(self, identifier: Identifier, schema: Schema, location: str, properties: Mapping[str, str]) -> Creation:
        """Begin a new table."""
        metadata = new_table_metadata(
            schema, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, location, dict(properties)
        )
        return Creation(StagedTable(identifier, metadata, "", self.io, _CollectingCatalog(self)))

    def drop(self, identifier: Identifier) -> None:
        """The table is to go."""
        self.moved.setdefault(identifier, None)


class _CollectingCatalog(NoopCatalog):
    """What PyIceberg commits to."""

    def __init__(self, pointers: PointerCatalog) -> None:
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


class StagedIO(FileIO):
    """Reads files that are there, and what was written to it; `written` is that, by location."""

    def __init__(self) -> None:
        super().__init__()
        self.written: dict[str, bytes] = {}
        self._there = _StoreIO()

    def new_input(self, location: str) -> InputFile:
        """A file to read."""
        return _StagedFile(self, location) if location in self.written else self._there.new_input(location)

    def new_output(self, location: str) -> OutputFile:
        """A file to write, in memory."""
        return _StagedFile(self, location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Forget a file that was to be written; what is there already stays."""
        self.written.pop(location if isinstance(location, str) else location.location, None)


class _StoreIO(PyArrowFileIO):
    """Asks a store as all else here does: by the same credentials, with the same patience."""

    def _initialize_fs(self, scheme: str, netloc: str | None = None) -> FileSystem:
        if scheme == SCHEME and netloc:
            return file_system(cast(ObjectPath, parse(f"{SCHEME}://{netloc}")))
        return super()._initialize_fs(scheme, netloc)


class _StagedFile(InputFile, OutputFile):
    def __init__(self, staged: StagedIO, location: str) -> None:
        super().__init__(location)
        self._io = staged

    def __len__(self) -> int:
        return len(self._io.written[self.location])

    def exists(self) -> bool:
        return self.location in self._io.written

    def open(self, seekable: bool = True) -> InputStream:
        return io.BytesIO(self._io.written[self.location])

    def to_input_file(self) -> InputFile:
        return self

    def create(self, overwrite: bool = False) -> OutputStream:
        if self.exists() and not overwrite:
            raise FileExistsError(self.location)
        return _StagedOutput(lambda content: self._io.written.update({self.location: content}))


class _StagedOutput(io.BytesIO):
    """What is written becomes a file when it is closed."""

    def __init__(self, keep: Callable[[bytes], None]) -> None:
        super().__init__()
        self._keep = keep

    def close(self) -> None:
        if not self.closed:
            self._keep(self.getvalue())
        super().close()
