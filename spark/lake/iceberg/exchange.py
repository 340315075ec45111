"""Replaces merged files in Iceberg tables of changes: the same rows in other files, as of the same seq."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lake.iceberg import publish
from lake.iceberg.changed_table import CommitStamp, TableCatalog, TableChange
from lake.iceberg.ledger import CatalogSettings, CommitHead, IcebergLedger, IcebergTable
from lake.iceberg.plan import CommitPlan, PlannedChange
from lake.iceberg.withdrawn_tables import sweep
from lake.storage.identity import Lake

COMPACTION = "pipeline.compaction"
"""The property with the last compaction that has changed a table."""
_LONGEST_SECONDS = 1e9
Paths = Sequence[str]


def prepare_exchange(
    lake: Lake, number: int, files: Mapping[tuple[str, int], tuple[Paths, Paths]]
) -> Callable[[], None] | None:
    """Make metadata of tables whose files were merged, and return a function that commits all of it.

    `number`: that of the compaction. `files`: by dataset and schema version, the replaced and the new files. Returns
    None if no table has these files, or if the lake was moved: then the next export makes its tables again.
    """
    ledger = IcebergLedger(lake)
    found, base = ledger.read_catalog(), publish.base_of(lake)
    if found is None or found["location"] != base:
        return None
    settings = CatalogSettings(found["catalog"], found["uri"])
    head = ledger.begin(settings, base)
    sweep(lake, ledger)
    known = ledger.tables()
    catalog = publish.catalog_of(settings, known)
    planned = [
        PlannedChange(_change(base, table, number, *files[table.dataset, table.version]), table.dataset, table.version)
        for table in known
        if table.version is not None
        and (table.dataset, table.version) in files
        and not _has_seen(catalog, table, number)
    ]
    if not planned:
        return None
    kept = ledger.oldest_kept(_LONGEST_SECONDS) or CommitHead(
        head.number + 1, head.upto_seq
    )  # the next export removes snapshots
    stamp = CommitStamp(head.number + 1, head.upto_seq, head.upto_seq, kept.number)
    return publish.stage_commit(lake, ledger, catalog, CommitPlan(planned), stamp, kept)


def _change(base: str, table: IcebergTable, number: int, gone: Paths, come: Paths) -> TableChange:
    return TableChange(
        table.identifier,
        table.identifier,
        "",
        added=[f"{base}/{path}" for path in come],
        removed=[f"{base}/{path}" for path in gone],
        properties={COMPACTION: str(number)},
    )


def _has_seen(catalog: TableCatalog, table: IcebergTable, number: int) -> bool:
    properties = catalog.load(table.identifier, table.identifier).properties
    return int(properties.get(COMPACTION, 0)) >= number
