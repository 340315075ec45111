"""A lake that is not to be read as Iceberg tables any more. What it needs is there without the extra, if any was."""

from __future__ import annotations

from pathlib import Path

from lake.iceberg.ledger import IcebergLedger
from lake.storage.identity import Lake


def withdraw(lake: Lake) -> None:
    """Readers find no Iceberg tables; their metadata goes when what was replaced does. The lake's lock must be held."""
    book = IcebergLedger(lake)
    if found := book.read_catalog():
        files: list[str] | None = None
        if found["uri"]:
            from lake.iceberg.rest import open_catalog  # PyIceberg is an extra

            catalog = open_catalog(found["catalog"], found["uri"])
            for table in book.tables():
                catalog.drop(table.identifier)
        elif not isinstance(lake.root, Path):
            from lake.iceberg.pointers import PointerCatalog  # PyIceberg is an extra
            from lake.iceberg.table_files import files_of

            there = {table.identifier: table.location for table in book.tables() if table.location}
            pointers, base = PointerCatalog(there), f"{lake.root}/"
            paths = [path for identifier in there for path in files_of(pointers.load(identifier, identifier))]
            files = [path.removeprefix(base) for path in paths if path.startswith(base)]
        book.forget(files)
        sweep(lake, book)


def sweep(lake: Lake, book: IcebergLedger) -> None:
    """Remove the files of a commit that never came."""
    if left := book.unfinished_files():
        if isinstance(lake.root, Path):
            lake.folder.remove_all(left)
            book.forget_written()
        else:  # a request of a process that has ended may still arrive
            book.remove_later(left)
