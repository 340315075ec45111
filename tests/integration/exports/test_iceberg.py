"""A lake's Iceberg tables: exact over the lake's own files, all as of one seq, whatever was interrupted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lake.errors import ExporterFencedError, UnfitTargetError
from lake.iceberg import ledger as iceberg_ledger
from lake.iceberg.ledger import CatalogSettings, IcebergLedger
from lake.iceberg.withdrawn_tables import withdraw
from lake.storage import replaced_files
from tests.fixtures.iceberg_lake import CATALOG, IcebergLake, iceberg_lake
from tests.fixtures.lake_ledger import SOURCE, all_files

ORDERS = {"id": "bigint", "state": "string"}


@pytest.fixture
def lake(database_dsn: str, tmp_path: Path) -> Iterator[IcebergLake]:
    with iceberg_lake(database_dsn, tmp_path / "lake") as made:
        yield made


def metadata(lake: IcebergLake) -> set[str]:
    return {path for path in all_files(lake.root) if path.startswith("iceberg/")}


def test_changes_and_states_are_tables(lake: IcebergLake) -> None:
    lake.change("shop.orders", ORDERS, {"id": 1, "state": "new"}, {"id": 2, "state": "new"})
    lake.state("shop.orders", ORDERS, {"id": 1, "state": "new"}, {"id": 2, "state": "new"})
    assert lake.publish() == 2
    assert lake.read("changes.shop.orders") == [{"id": 1, "state": "new"}, {"id": 2, "state": "new"}]
    assert lake.read("current.shop.orders") == [{"id": 1, "state": "new"}, {"id": 2, "state": "new"}]
    assert lake.publish() is None, "nothing is new"
    lake.change("shop.orders", ORDERS, {"id": 1, "state": "paid"})
    lake.state("shop.orders", ORDERS, {"id": 1, "state": "paid"}, {"id": 2, "state": "new"})
    assert lake.publish() == 3
    assert [row["state"] for row in lake.read("changes.shop.orders")] == ["new", "new", "paid"]
    assert sorted(row["state"] for row in lake.read("current.shop.orders")) == ["new", "paid"]
    with lake.catalog() as catalog:
        assert sorted(catalog.list_namespaces()) == [("changes",), ("current",)]
        table = catalog.load_table("changes.shop.orders")
    assert table.scan("seq > 2").to_arrow().num_rows == 1
    snapshot = table.current_snapshot()
    assert snapshot and snapshot.summary
    seqs = {name: snapshot.summary[name] for name in ("pipeline.after-seq", "pipeline.upto-seq")}
    assert seqs == {"pipeline.after-seq": "2", "pipeline.upto-seq": "3"}
    before = table.scan(snapshot_id=snapshot.parent_snapshot_id)
    assert before.to_arrow().num_rows == 2


def test_types_that_widen_and_columns_that_come(lake: IcebergLake) -> None:
    lake.change("shop.orders", {"id": "int"}, {"id": 1})
    lake.publish()
    lake.change("shop.orders", {"id": "bigint", "tags": "array<string>"}, {"id": 1 << 40, "tags": ["a", None]})
    lake.change("shop.orders", {"id": "string"}, {"id": "two"}, version=2)
    lake.change("messages", {"prefix": "string"}, {"prefix": "p"})
    lake.publish()
    assert lake.read("changes.shop.orders") == [{"id": 1, "tags": None}, {"id": 1 << 40, "tags": ["a", None]}]
    assert lake.read("changes.shop.orders@2") == [{"id": "two"}]
    assert lake.read("changes.messages") == [{"prefix": "p"}]


def test_a_renamed_column_is_one_column_also_for_snapshots_of_before(lake: IcebergLake) -> None:
    lake.attnums |= {"id": 1, "state": 2, "status": 2}
    lake.state("shop.orders", ORDERS, {"id": 1, "state": "new"})
    lake.publish()
    first = lake.tables()["current.shop.orders"].current_snapshot()
    assert first
    lake.upto += 1
    lake.state("shop.orders", {"id": "bigint", "status": "string"}, {"id": 1, "status": "paid"})
    lake.publish()
    table = lake.tables()["current.shop.orders"]
    assert lake.read("current.shop.orders") == [{"id": 1, "status": "paid"}]
    assert table.schema().find_field("status").field_id == table.schemas()[0].find_field("state").field_id
    assert table.scan(snapshot_id=first.snapshot_id, selected_fields=("state",)).to_arrow().to_pylist() == [
        {"state": "new"}
    ]


def test_a_name_that_means_another_column_ends_the_history(lake: IcebergLake) -> None:
    lake.attnums |= {"id": 1, "state": 2}
    lake.state("shop.orders", ORDERS, {"id": 1, "state": "new"})
    lake.publish()
    lake.upto += 1
    lake.attnums |= {"state": 3}
    lake.state("shop.orders", ORDERS, {"id": 1, "state": "other"})
    lake.publish()
    table = lake.tables()["current.shop.orders"]
    assert table.scan(selected_fields=("state",)).to_arrow().to_pylist() == [{"state": "other"}]
    assert len(table.metadata.snapshots) == 1


def test_a_table_goes_on_under_another_name(lake: IcebergLake) -> None:
    lake.state("shop.orders", ORDERS, {"id": 1, "state": "old"}, oid=1001)
    lake.publish()
    uuid = lake.tables()["current.shop.orders"].metadata.table_uuid
    lake.upto += 1
    lake.state("shop.orders", ORDERS, {"id": 2, "state": "new"}, oid=1002)
    lake.state("shop.past", ORDERS, {"id": 1, "state": "old"}, oid=1001)
    lake.publish()
    assert lake.read("current.shop.past") == [{"id": 1, "state": "old"}]
    assert lake.read("current.shop.orders") == [{"id": 2, "state": "new"}]
    assert lake.tables()["current.shop.past"].metadata.table_uuid == uuid
    lake.upto += 1
    lake.publish(behind=[(SOURCE, 0, 1002)])
    assert set(lake.tables()) == {"current.shop.past"}, "what is not as of the same seq is not there"
    lake.publish()
    assert lake.read("current.shop.orders") == [{"id": 2, "state": "new"}]


def test_what_nobody_may_read_any_more_goes(lake: IcebergLake) -> None:
    lake.state("shop.quiet", ORDERS, {"id": 1, "state": "new"}, oid=1002)
    for number in range(6):
        lake.change("shop.orders", ORDERS, {"id": number, "state": "new"})
        lake.state("shop.orders", ORDERS, {"id": number, "state": "new"})
        if number == 1:
            lake.state("shop.quiet", ORDERS, {"id": 1, "state": "paid"}, oid=1002)
        lake.publish(keep=0)
    assert {len(table.metadata.snapshots) for table in lake.tables().values()} == {1, 2}
    assert len(lake.tables()["current.shop.quiet"].metadata.snapshots) == 1
    replaced_files.remove(lake.ledger.lake, 0)
    assert metadata(lake) == lake.metadata_in_use()
    assert len(lake.read("changes.shop.orders")) == 6


def test_a_version_stays_while_the_tables_are_of_it(lake: IcebergLake) -> None:
    lake.state("shop.orders", ORDERS, {"id": 1, "state": "new"})
    lake.publish(keep=0)
    lake.upto += 1
    lake.state("shop.orders", ORDERS, {"id": 1, "state": "paid"})
    assert lake.superseded() == [], "it was replaced, but the Iceberg table is still of it"
    lake.publish(keep=0)
    assert lake.superseded() == [], "who has opened the table before still reads it"
    lake.upto += 1
    lake.change("shop.other", ORDERS, {"id": 1, "state": "x"})
    lake.publish(keep=0)
    lake.change("shop.other", ORDERS, {"id": 1, "state": "x"})
    lake.publish(keep=0)
    assert lake.superseded() == [0]


def test_turned_off_and_on_again(lake: IcebergLake) -> None:
    lake.change("shop.orders", ORDERS, {"id": 1, "state": "new"})
    lake.publish()
    withdraw(lake.ledger.lake)
    assert lake.tables() == {}
    before = metadata(lake)
    lake.change("shop.orders", ORDERS, {"id": 2, "state": "new"})
    lake.publish()
    assert before < metadata(lake), "who has opened a table may still read it"
    replaced_files.remove(lake.ledger.lake, 0)
    assert metadata(lake) == lake.metadata_in_use()
    assert [row["id"] for row in lake.read("changes.shop.orders")] == [1, 2]


def test_a_catalog_has_the_tables_of_one_lake(lake: IcebergLake, tmp_path: Path) -> None:
    lake.change("shop.orders", ORDERS, {"id": 1, "state": "new"})
    lake.publish()
    with pytest.raises(
        UnfitTargetError, match=r"catalog lake has the tables of the lake .*; name another PIPELINE_EXPORT_I"
    ):
        IcebergLedger(lake.another(tmp_path / "other")).begin(CATALOG, "file:///elsewhere")
    IcebergLedger(lake.another(tmp_path / "third")).begin(CatalogSettings("third"), "file:///elsewhere")


class Crash(Exception):
    """Instead of a kill."""


def test_a_commit_is_whole_or_not_at_all(lake: IcebergLake, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: Any) -> None:
        raise Crash

    def torn(path: str, content: bytes) -> None:
        write(path, content)
        if path.endswith(".avro"):
            raise Crash

    write = lake.ledger.lake.folder.write
    for number, (target, name, instead) in enumerate(
        [
            (IcebergLedger, "record_written", crash),
            (lake.ledger.lake.folder, "write", torn),
            (IcebergLedger, "commit", crash),
            (iceberg_ledger, "_COMMIT", "select 1 from (select $1, $2, $3, $4, $5, $6, $7) x where 1 / 0 = 1"),
        ],
        1,
    ):
        for dataset in ("shop.a", "shop.b"):
            lake.change(dataset, ORDERS, {"id": number, "state": "new"})
        before = {name: table.metadata_location for name, table in lake.tables().items()}
        with monkeypatch.context() as patch:
            patch.setattr(target, name, instead)
            with pytest.raises(Exception):  # noqa: B017  Crash, or the driver's
                lake.publish(keep=0)
        assert {name: table.metadata_location for name, table in lake.tables().items()} == before
        assert lake.publish(keep=0) == lake.upto
        for dataset in ("shop.a", "shop.b"):
            assert [row["id"] for row in lake.read(f"changes.{dataset}")] == list(range(1, number + 1))
        replaced_files.remove(lake.ledger.lake, 0)
        assert metadata(lake) == lake.metadata_in_use(), "nothing is left of what was interrupted"


def test_tables_that_somebody_else_has_written_to_are_not_overwritten(
    lake: IcebergLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.change("shop.orders", ORDERS, {"id": 1, "state": "new"})
    lake.publish()
    lake.change("shop.orders", ORDERS, {"id": 2, "state": "new"})
    written = IcebergLedger.record_written

    def meddle(book: IcebergLedger, paths: Any) -> None:
        written(book, paths)
        with lake.catalog() as catalog:
            catalog.load_table("changes.shop.orders").transaction().set_properties(a="b").commit_transaction()

    with monkeypatch.context() as patch:
        patch.setattr(IcebergLedger, "record_written", meddle)
        with pytest.raises(ExporterFencedError, match="another program has written to the lake's Iceberg tables"):
            lake.publish()
    lake.publish()
    assert [row["id"] for row in lake.read("changes.shop.orders")] == [1, 2]
