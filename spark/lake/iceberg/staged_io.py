"""Files of a commit in memory, until all of them are known: then they are listed, written and committed together."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import cast

from pyarrow.fs import FileSystem
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.io.pyarrow import PyArrowFileIO

from lake.storage.object_store import file_system
from lake.storage.where import SCHEME, ObjectPath, parse


class StagedIO(FileIO):
    """Reads files that are there, and what was written to it; `written` is that, by location."""

    def __init__(self) -> None:
        super().__init__()
        self.written: dict[str, bytes] = {}
        self._there = _There()

    def new_input(self, location: str) -> InputFile:
        """A file to read."""
        return _Staged(self, location) if location in self.written else self._there.new_input(location)

    def new_output(self, location: str) -> OutputFile:
        """A file to write, in memory."""
        return _Staged(self, location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Forget a file that was to be written; what is there already stays."""
        self.written.pop(location if isinstance(location, str) else location.location, None)


class _There(PyArrowFileIO):
    """Asks a store as all else here does: by the same credentials, with the same patience."""

    def _initialize_fs(self, scheme: str, netloc: str | None = None) -> FileSystem:
        if scheme == SCHEME and netloc:
            return file_system(cast(ObjectPath, parse(f"{SCHEME}://{netloc}")))
        return super()._initialize_fs(scheme, netloc)


class _Staged(InputFile, OutputFile):
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
        return _Output(lambda content: self._io.written.update({self.location: content}))


class _Output(io.BytesIO):
    """What is written becomes a file when it is closed."""

    def __init__(self, keep: Callable[[bytes], None]) -> None:
        super().__init__()
        self._keep = keep

    def close(self) -> None:
        if not self.closed:
            self._keep(self.getvalue())
        super().close()
