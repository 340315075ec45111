"""How files of current states are written, whichever engine folds."""

from __future__ import annotations

from typing import Any

import pyarrow.parquet as pq

GROUP_ROWS = 128 * 1024
"""Rows of a row group: whoever reads the file again keeps one of them in memory, besides what it wants of it."""
GROUP_BYTES = 32 * 1024 * 1024
"""And its bytes, about."""


def options() -> dict[str, Any]:
    """Of pyarrow's writer. Rows are sorted by the first column, `record_pk`."""
    return {
        "compression": "zstd",
        "write_page_index": True,
        "store_decimal_as_integer": True,
        "store_schema": False,
        "sorting_columns": [pq.SortingColumn(0)],
    }
