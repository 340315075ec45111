"""Iceberg tables of changes whose small files were merged: the same rows in other files, as of the same seq."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lake.iceberg import publish
from lake.iceberg.changed_table import Catalog, Change, Stamp
from lake.iceberg.ledger import Head, IcebergLedger, IcebergTable, Settings
from lake.iceberg.plan import Plan, Planned
from lake.iceberg.withdrawn import sweep
from lake.storage.identity import Lake

COMPACTION = "pipeline.compaction"
"""The last compaction that a table of changes has seen."""
_EVER = 1e9
Paths = Sequence[str]


def prepared(
    lake: Lake, number: int, files: Mapping[tuple[str, int], tuple[Paths, Paths]]
) -> Callable[[], None] | None:
    """Make the metadata of tables that have other files from now on; what is returned sets all of them.

    `number`: of the compaction. `files`: by dataset and schema version, those that go and those that come. None where
    no table has them any more, or the lake was moved: then its tables are made anew at the next export.
    """
    book = IcebergLedger(lake)
    found, base = book.found(), publish.base_of(lake)
    if found is None or found["location"] != base:
        return None
    settings = Settings(found["catalog"], found["uri"])
    head = book.begin(settings, base)
    sweep(lake, book)
    known = book.tables()
    catalog = publish.catalog_of(settings, known)
    planned = [
        Planned(_change(base, table, number, *files[table.dataset, table.version]), table.dataset, table.version)
        for table in known
        if table.version is not None
        and (table.dataset, table.version) in files
        and not _has_seen(catalog, table, number)
    ]
    if not planned:
        return None
    kept = book.kept(_EVER) or Head(head.number + 1, head.upto_seq)  # what may go goes with the next export
    stamp = Stamp(head.number + 1, head.upto_seq, head.upto_seq, kept.number)
    return publish.staged(lake, book, catalog, Plan(planned), stamp, kept)


def _change(base: str, table: IcebergTable, number: int, gone: Paths, come: Paths) -> Change:
    return Change(
        table.identifier,
        table.identifier,
        "",
        added=[f"{base}/{path}" for path in come],
        removed=[f"{base}/{path}" for path in gone],
        properties={COMPACTION: str(number)},
    )


def _has_seen(catalog: Catalog, table: IcebergTable, number: int) -> bool:
    properties = catalog.load(table.identifier, table.identifier).properties
    return int(properties.get(COMPACTION, 0)) >= number
