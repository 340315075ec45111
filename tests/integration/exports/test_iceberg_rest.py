"""Iceberg tables in a REST catalog: one commit for each, and what was interrupted between two is made up for."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.table import StaticTable

from lake.errors import ExportError
from lake.iceberg.ledger import CatalogSettings
from lake.iceberg.publish import publish
from lake.iceberg.withdrawn_tables import withdraw
from tests.fixtures.iceberg_lake import CATALOG, IcebergLake, iceberg_lake
from tests.fixtures.rest_catalog import RestCatalogServer, rest_catalog

ORDERS = {"id": "bigint"}


@pytest.fixture
def lake(database_dsn: str, tmp_path: Path) -> Iterator[IcebergLake]:
    with iceberg_lake(database_dsn, tmp_path / "lake") as made:
        yield made


@pytest.fixture
def server() -> Iterator[RestCatalogServer]:
    with rest_catalog() as made:
        yield made


def ids(server: RestCatalogServer) -> dict[str, list[int]]:
    found = {}
    for identifier, location in server.tables.items():
        rows = StaticTable.from_metadata(location).scan(selected_fields=("id",)).to_arrow()
        found[".".join(identifier)] = sorted(rows.column("id").to_pylist())
    return found


def test_tables_come_change_are_renamed_and_go(lake: IcebergLake, server: RestCatalogServer) -> None:
    settings = CatalogSettings("lake", server.uri)
    lake.change("shop.orders", ORDERS, {"id": 1})
    lake.state("shop.orders", ORDERS, {"id": 1})
    assert publish(lake.ledger.lake, settings, 0) == 1
    assert ids(server) == {"changes.shop.orders": [1], "current.shop.orders": [1]}
    assert lake.tables() == {}, "the pipeline database has none of them"
    lake.change("shop.past", ORDERS, {"id": 2})
    lake.state("shop.past", ORDERS, {"id": 1}, {"id": 2})
    lake.state("shop.orders", ORDERS, {"id": 5}, oid=1002)
    publish(lake.ledger.lake, settings, 0)
    assert ids(server) == {
        "changes.shop.orders": [1],
        "changes.shop.past": [2],
        "current.shop.past": [1, 2],
        "current.shop.orders": [5],
    }
    withdraw(lake.ledger.lake)
    assert ids(server) == {}
    lake.publish()
    assert len(lake.tables()) == 4


def test_what_ends_between_two_commits_is_made_up_for(lake: IcebergLake, server: RestCatalogServer) -> None:
    settings = CatalogSettings("lake", server.uri)
    expected: list[int] = []
    for number in range(1, 4):
        for table in ("shop.a", "shop.b"):
            lake.change(table, ORDERS, {"id": number})
        expected.append(number)
        server.fails_after = server.commits + 1
        with pytest.raises(ExportError, match=r"the Iceberg table changes\.shop\.b: .*not now"):
            publish(lake.ledger.lake, settings, 0)
        server.fails_after = None
        publish(lake.ledger.lake, settings, 0)
        assert ids(server) == {"changes.shop.a": expected, "changes.shop.b": expected}


def test_a_catalog_that_does_not_answer(lake: IcebergLake) -> None:
    lake.change("shop.a", ORDERS, {"id": 1})
    with socket.socket() as bound:  # no other process takes the port, and none listens there
        bound.bind(("127.0.0.1", 0))
        uri = f"http://127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(ExportError, match=rf"the Iceberg catalog at {uri}: .*refused"):
            publish(lake.ledger.lake, CatalogSettings(CATALOG.catalog, uri), 0)
