"""docs/how-to/read-iceberg.md: its code reads what the lake's Iceberg tables hold."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.iceberg_lake import IcebergLake, iceberg_lake

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "how-to" / "read-iceberg.md"
DUCKDB = Path(sys.prefix) / "duckdb-iceberg"
"""Made by `make test`."""
_DSN = 'f"host={os.getcwd()}/.pipeline/postgres user=postgres dbname=pipeline"'
_URI = 'f"postgresql+psycopg:///pipeline?{server}"'
ORDERS = {"id": "bigint", "amount": "decimal(38,10)"}
ROW = {"id": 1, "amount": "1234567890123456789012345678.0123456789"}


@pytest.fixture
def lake(database_dsn: str, tmp_path: Path) -> Iterator[IcebergLake]:
    with iceberg_lake(database_dsn, tmp_path / "lake") as made:
        made.attnums |= {"amount": 2}
        made.change("shop.orders", ORDERS, ROW)
        for _ in range(2):
            made.upto += 1
            made.state("shop.orders", ORDERS, ROW)
            made.publish()
        yield made


def code(heading: str) -> str:
    """The Python under a heading of the page."""
    found = re.search(rf"^## {heading}\n.*?^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    assert found, heading
    return found[1]


def run(lake: IcebergLake, heading: str) -> dict[str, Any]:
    """What its code has defined, with the database of the test in place of the page's."""
    written = code(heading).replace("public.orders", "shop.orders").replace('"id", "paid"', '"id", "amount"')
    uri = f"{lake.catalog_uri()}options=-csearch_path%3Dpipeline"
    written = written.replace(_URI, repr(uri)).replace(_DSN, repr(lake.dsn))
    names: dict[str, Any] = {}
    exec(compile(written, PAGE.name, "exec"), names)  # noqa: S102
    return names


@pytest.mark.parametrize("heading", ["Read with PyIceberg", "Read several tables as of one moment"])
def test_python(lake: IcebergLake, heading: str) -> None:
    names = run(lake, heading)
    assert [(row["id"], str(row["amount"])) for row in names["orders"].to_pylist()] == [(1, ROW["amount"])]
    if "catalog" in names:
        names["catalog"].close()


@pytest.mark.skipif(not (DUCKDB / "bin" / "python").exists(), reason=f"no DuckDB in {DUCKDB}; `make test` makes it")
def test_duckdb(lake: IcebergLake) -> None:
    locations = {name: table.metadata_location for name, table in lake.tables().items()}
    extensions = sorted(map(str, DUCKDB.glob("lib/python*/site-packages/duckdb_extension_*/**/*.duckdb_extension")))
    loaded = "\n".join(f"duckdb.sql(\"load '{path}'\")" for path in extensions)
    script = f"""import duckdb
{loaded}
orders = duckdb.sql("select id, amount from iceberg_scan('{locations["current.shop.orders"]}')")"""
    script += "\nprint([(key, str(value)) for key, value in orders.fetchall()])"
    done = subprocess.run(
        [DUCKDB / "bin" / "python", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    # Before its own last line DuckDB prints how far it is, where that takes long.
    assert done.stdout.splitlines()[-1:] == [str([(1, ROW["amount"])])], done.stderr
