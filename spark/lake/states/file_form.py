"""Options for files of current states, which are the same for both engines."""

from __future__ import annotations

from typing import Any

import pyarrow.parquet as pq

GROUP_ROWS = 128 * 1024
"""Rows of a row group: a reader keeps one row group in memory, besides the rows that it selects."""
GROUP_BYTES = 32 * 1024 * 1024
"""Bytes of a row group, about."""


def options() -> dict[str, Any]:
    """Return options of pyarrow's writer. Rows are sorted by the first column, `record_pk`."""
    return {
        "compression": "zstd",
        "write_page_index": True,
        "store_decimal_as_integer": True,
        "store_schema": False,
        "sorting_columns": [pq.SortingColumn(0)],
    }
