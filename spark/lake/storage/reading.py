"""Reads files of a lake on a disk or in a bucket, on the driver and in tasks."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.parquet as pq

from lake.storage import object_store
from lake.storage.where import LakePath


def parquet(at: LakePath) -> pq.ParquetFile:
    """Open a Parquet file, which the caller must close. Raises OSError."""
    if isinstance(at, Path):
        return pq.ParquetFile(at)
    return pq.ParquetFile(at.in_store, filesystem=object_store.file_system(at), pre_buffer=True)


def dataset(at: LakePath) -> ds.Dataset:
    """Open a Parquet file as a dataset, which can be filtered during the read. Raises OSError."""
    if isinstance(at, Path):
        return ds.dataset(at)
    return ds.dataset(at.in_store, filesystem=object_store.file_system(at), format="parquet")


def copy(at: LakePath, to: Path) -> None:
    """Copy a file of the lake to a local file. Raises OSError."""
    if isinstance(at, Path):
        shutil.copyfile(at, to)
    else:
        object_store.download(at, to)
