"""A lake that is not to be read as Iceberg tables any more. What it needs is there without the extra, if any was."""

from __future__ import annotations

from lake.folder import unfit
from lake.iceberg.ledger import IcebergLedger
from lake.identity import Lake


def withdraw(lake: Lake) -> None:
    """Readers find no Iceberg tables; their metadata goes when what was replaced does. The lake's lock must be held."""
    book = IcebergLedger(lake)
    if found := book.found():
        if found["uri"]:
            from lake.iceberg.rest import opened  # PyIceberg is an extra

            catalog = opened(found["catalog"], found["uri"])
            for table in book.tables():
                catalog.drop(table.identifier)
        book.forget()
        sweep(lake, book)


def sweep(lake: Lake, book: IcebergLedger) -> None:
    """Remove the files of a commit that never came."""
    if left := book.left_over():
        for path in left:
            with unfit(lake.root / path):
                (lake.root / path).unlink(missing_ok=True)
        book.removed()
