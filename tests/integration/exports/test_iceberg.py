"""A lake's Iceberg tables: exact over the lake's own files, all as of one seq, whatever was interrupted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.iceberg_lake import IcebergLake, iceberg_lake

ORDERS = {"id": "bigint", "state": "string"}


@pytest.fixture
def lake(database_dsn: str, tmp_path: Path) -> Iterator[IcebergLake]:
    with iceberg_lake(database_dsn, tmp_path / "lake") as made:
        yield made


def test_changes_and_states_are_tables(lake: IcebergLake) -> None:
    lake.change("shop.orders", ORDERS, {"id": 1, "state": "new"}, {"id": 2, "state": "new"})
    lake.state("shop.orders", ORDERS, {"id": 1, "state": "new"}, {"id": 2, "state": "new"})
    assert lake.publish() == 2
    assert lake.read("changes.shop.orders") == [{"id": 1, "state": "new"}, {"id": 2, "state": "new"}]
    assert lake.read("current.shop.orders") == [{"id": 1, "state": "new"}, {"id": 2, "state": "new"}]
    assert lake.publish() is None, "nothing is new"
    table = lake.catalog().load_table("changes.shop.orders")
    assert table.scan("seq > 1").to_arrow().num_rows == 1
    lake.change("shop.orders", ORDERS, {"id": 1, "state": "paid"})
    lake.state("shop.orders", ORDERS, {"id": 1, "state": "paid"}, {"id": 2, "state": "new"})
    assert lake.publish() == 3
    assert [row["state"] for row in lake.read("changes.shop.orders")] == ["new", "new", "paid"]
    assert sorted(row["state"] for row in lake.read("current.shop.orders")) == ["new", "paid"]
