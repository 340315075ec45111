"""Reads files of a lake by where they are, on the driver and in tasks."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.parquet as pq

from lake.storage import object_store
from lake.storage.where import LakePath


def parquet(at: LakePath) -> pq.ParquetFile:
    """A Parquet file, to be closed. Raises OSError."""
    if isinstance(at, Path):
        return pq.ParquetFile(at)
    return pq.ParquetFile(at.in_store, filesystem=object_store.file_system(at), pre_buffer=True)


def dataset(at: LakePath) -> ds.Dataset:
    """The same as a dataset, to be filtered while it is read. Raises OSError."""
    if isinstance(at, Path):
        return ds.dataset(at)
    return ds.dataset(at.in_store, filesystem=object_store.file_system(at), format="parquet")


def copy(at: LakePath, to: Path) -> None:
    """Write the file's content to another. Raises OSError."""
    if isinstance(at, Path):
        shutil.copyfile(at, to)
    else:
        object_store.download(at, to)
