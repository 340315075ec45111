"""The code of the pages on Parquet and Spark, run as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

_PAGES = Path(__file__).parents[2] / "docs" / "how-to"
DOC = _PAGES / "read-the-lake.md"
SPARK = _PAGES / "read-with-spark.md"
READERS = ("DuckDB", "pyarrow", "polars", "pandas", "Spark")
SHOWN = "lake"
"""The lake as the page names it."""


def blocks(page: Path = DOC) -> dict[tuple[str, str], str]:
    """Python code by the headings that it is under: `("Changes", "DuckDB")`."""
    found: dict[tuple[str, str], str] = {}
    section = reader = ""
    for part in re.finditer(r"^## ([^\n]+)$|^### ([^\n]+)$|^```python\n(.*?)^```$", page.read_text(), re.M | re.S):
        section, reader = part[1] or section, part[2] or ("" if part[1] else reader)
        if part[3]:
            found.setdefault((section, reader), part[3])
    return found


def read(section: str, reader: str, lake: Path, spark: SparkSession, version: int = 1) -> pa.Table:
    """What the code reads from `lake`, in order of its first column; `version` is added to paths of changes."""
    known = blocks()
    code = known.get((section, reader), known["Changes", reader]).replace(f"{SHOWN}/", f"{lake}/")
    if version != 1:
        code = code.replace("shop.orders", f"shop.orders/schema={version}")
    names: dict[str, Any] = {"spark": spark}
    exec(compile(code, f"{DOC.name}: {section}, {reader}", "exec"), names)  # noqa: S102
    table = _as_arrow(names["orders"])
    return table.sort_by(table.column_names[0])


def _as_arrow(result: Any) -> pa.Table:
    if hasattr(result, "to_arrow_table"):  # DuckDB
        return result.to_arrow_table()
    if hasattr(result, "collect_schema"):  # polars
        return result.collect().to_arrow()
    if hasattr(result, "toArrow"):  # Spark
        return result.toArrow()
    if hasattr(result, "to_table"):  # pyarrow
        return result.to_table()
    return pa.Table.from_pandas(result, preserve_index=False)
