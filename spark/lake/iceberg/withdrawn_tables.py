"""Withdraws the Iceberg tables of a lake. Only for a REST catalog or a bucket, this needs the PyIceberg extra."""

from __future__ import annotations

from pathlib import Path

from lake.iceberg.ledger import IcebergLedger
from lake.storage.identity import Lake


def withdraw(lake: Lake) -> None:
    """Withdraw all Iceberg tables; their metadata is removed as replaced files are. The lake's lock must be held."""
    ledger = IcebergLedger(lake)
    if found := ledger.read_catalog():
        files: list[str] | None = None
        if found["uri"]:
            from lake.iceberg.rest import open_catalog  # PyIceberg is an extra

            catalog = open_catalog(found["catalog"], found["uri"])
            for table in ledger.tables():
                catalog.drop(table.identifier)
        elif not isinstance(lake.root, Path):
            from lake.iceberg.pointers import PointerCatalog  # PyIceberg is an extra
            from lake.iceberg.table_files import files_of

            locations = {table.identifier: table.location for table in ledger.tables() if table.location}
            pointers, base = PointerCatalog(locations), f"{lake.root}/"
            paths = [path for identifier in locations for path in files_of(pointers.load(identifier, identifier))]
            files = [path.removeprefix(base) for path in paths if path.startswith(base)]
        ledger.forget(files)
        sweep(lake, ledger)


def sweep(lake: Lake, ledger: IcebergLedger) -> None:
    """Remove the files of a commit that did not succeed."""
    if paths := ledger.unfinished_files():
        if isinstance(lake.root, Path):
            lake.folder.remove_all(paths)
            ledger.forget_written()
        else:  # a request of a process that has ended may still arrive
            ledger.remove_later(paths)
