"""The catalog in the pipeline database during a commit: it collects changed tables, which one statement sets later."""

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
    """A catalog over `locations` of metadata. `moved`: the new locations; None: the table must be dropped."""

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
        """Load a table as it was before this commit; `called`: its name after the commit."""
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
        """Let the commit drop a table."""
        self.moved.setdefault(identifier, None)


class _CollectingCatalog(NoopCatalog):
    """A catalog for PyIceberg that only collects commits."""

    def __init__(self, pointers: PointerCatalog) -> None:
        super().__init__("collected")
        self._pointers = pointers

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Stage the metadata that the updates make, and remember its location."""
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
    """Reads existing files, and files that were written to it in memory: `written`, by location."""

    def __init__(self) -> None:
        super().__init__()
        self.written: dict[str, bytes] = {}
        self._store = _StoreIO()

    def new_input(self, location: str) -> InputFile:
        """Return a file to read."""
        return _StagedFile(self, location) if location in self.written else self._store.new_input(location)

    def new_output(self, location: str) -> OutputFile:
        """Return a file to write in memory."""
        return _StagedFile(self, location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Forget a file in memory; existing files stay."""
        self.written.pop(location if isinstance(location, str) else location.location, None)


class _StoreIO(PyArrowFileIO):
    """Reads existing files of a store as the rest of the lake does: same credentials, same timeouts."""

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
    """A stream whose content becomes a file when the stream is closed."""

    def __init__(self, keep: Callable[[bytes], None]) -> None:
        super().__init__()
        self._keep = keep

    def close(self) -> None:
        if not self.closed:
            self._keep(self.getvalue())
        super().close()
