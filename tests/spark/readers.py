"""The code of the pages on reading the lake and the log, run as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
READERS = {"DuckDB": "duckdb", "pyarrow": "pandas", "polars": "pandas", "pandas": "pandas", "Spark": "spark"}
"""The page of each reader: `read-with-….md`."""
CHANGES, NOW = "Read all changes of a table", "Read a table as it is now"
ALL_VERSIONS, ONE_VERSION = "Read all versions of a table", "Read one version of several"
LOG = "Read the log itself"
_SESSION = "from session import spark\n"
"""The page has its session in a file; a test gives its own."""


def code(section: str, reader: str) -> str | None:
    """The first program under a heading of the reader's page, and under the reader's name if it stands there."""
    page = (PAGES / f"read-with-{READERS[reader]}.md").read_text()
    _, found, part = page.partition(f"\n## {section}\n")
    part = part.partition("\n## ")[0]
    _, named, own = part.partition(f"\n### {reader}\n")
    program = re.search(r"^```python\n(.*?)^```$", own if named else part, re.M | re.S)
    return program[1].replace(_SESSION, "") if found and program else None


def read(section: str, reader: str, lake: Path, spark: SparkSession, version: int = 1) -> pa.Table:
    """What the code reads from `lake`, in order of its first column; `version` is added to paths of changes."""
    program = code(section, reader) or code(CHANGES, reader)
    assert program, reader
    folder = f"shop.orders/schema={version}" if version != 1 else "shop.orders"
    program = program.replace(".pipeline/exports", str(lake)).replace("public.orders", folder)
    names: dict[str, Any] = {"spark": spark}
    exec(compile(program, f"{reader}: {section}", "exec"), names)  # noqa: S102
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
