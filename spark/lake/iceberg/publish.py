"""Publishes a lake as Iceberg tables: all of them as of one seq, in one transaction of the pipeline database.

A commit goes through these steps:

1. It makes metadata in memory, and the ledger gets the names of the files.
2. It writes the files, complete and durable.
3. One statement sets the location of every table's metadata, and the ledger's row.

If a commit ends before the last step, readers see the same as before, and the next run removes the files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

from lake.errors import UnfitTargetError
from lake.iceberg import changed_table, names, rest
from lake.iceberg.changed_table import CommitStamp, TableCatalog, TableChangeResult
from lake.iceberg.ledger import CatalogSettings, CommitHead, CommitRow, IcebergLedger, IcebergTable
from lake.iceberg.names import Identifier
from lake.iceberg.plan import CommitPlan, CommitPlanner, PlannedChange, TableRoot
from lake.iceberg.pointers import PointerCatalog
from lake.iceberg.table_files import files_of
from lake.iceberg.withdrawn_tables import sweep, withdraw
from lake.storage.identity import Lake


def publish(lake: Lake, settings: CatalogSettings, keep: float, behind: Iterable[TableRoot] = ()) -> int | None:
    """Bring all Iceberg tables up to the exported seq. Return that seq, or None if nothing had to change.

    The lake's lock must be held. `behind`: tables whose current state is older; they leave the catalog until their
    state is up to date. Snapshots that were replaced `keep` seconds ago are removed.
    """
    ledger, base = IcebergLedger(lake), base_of(lake)
    found = ledger.read_catalog()
    if found and (found["catalog"], found["uri"], found["location"]) != (settings.catalog, settings.uri, base):
        withdraw(lake)
    head = ledger.begin(settings, base)
    sweep(lake, ledger)
    upto, number = lake.ledger.exported_upto(lake.id), head.number + 1
    kept = ledger.oldest_kept(keep) or CommitHead(number, upto)
    known = ledger.tables()
    catalog = catalog_of(settings, known)
    planner = CommitPlanner(
        lake, ledger, base, head, number, lambda table, name: _property(catalog, table, name), catalog.has_renames
    )
    plan = planner.plan(set(behind), kept)
    if not plan.planned and not plan.gone and upto == head.upto_seq:
        return None
    stage_commit(lake, ledger, catalog, plan, CommitStamp(number, head.upto_seq, upto, kept.number), kept)()
    return upto


def stage_commit(
    lake: Lake, ledger: IcebergLedger, catalog: TableCatalog, plan: CommitPlan, stamp: CommitStamp, kept: CommitHead
) -> Callable[[], None]:
    """Make and write the metadata of a commit, and return a function that sets all tables in one statement."""
    base, known = base_of(lake), ledger.tables()
    made = {each.change.identifier: changed_table.change_table(catalog, each.change, stamp) for each in plan.planned}
    gone = _dropped_locations(lake, known, plan, catalog)
    for identifier in plan.gone:
        catalog.drop(identifier)
    _write_metadata(lake, ledger, base, catalog.written)
    rows = _rows(known, plan, catalog, made, stamp.number)
    return partial(ledger.commit, CommitHead(stamp.number, stamp.upto_seq), kept, rows, _unused_paths(base, gone, made))


def catalog_of(settings: CatalogSettings, known: Sequence[IcebergTable]) -> TableCatalog:
    """Return the catalog of these tables."""
    if settings.uri:
        return rest.open_catalog(settings.catalog, settings.uri)
    return PointerCatalog({table.identifier: table.location for table in known if table.location})


def base_of(lake: Lake) -> str:
    """Return the lake's location. Raises UnfitTargetError if Iceberg cannot use it."""
    path = str(lake.root)
    if not isinstance(lake.root, Path):
        return path
    if "#" in path or "?" in path:
        raise UnfitTargetError(f"{path} has a # or ? in it, which Iceberg's locations cannot have; move the lake")
    return f"file://{path}"


def _property(catalog: TableCatalog, table: Identifier, name: str) -> str | None:
    found = catalog.load(table, table).properties.get(name)
    return None if found is None else str(found)


def _write_metadata(lake: Lake, ledger: IcebergLedger, base: str, written: Mapping[str, bytes]) -> None:
    paths = {_path_in_lake(base, location): content for location, content in written.items()}
    ledger.record_written(paths)
    lake.folder.write_all(paths)


def _path_in_lake(base: str, location: str) -> str:
    return location.removeprefix(f"{base}/")


def _rows(
    known: Sequence[IcebergTable],
    plan: CommitPlan,
    catalog: TableCatalog,
    made: Mapping[Identifier, TableChangeResult],
    number: int,
) -> list[CommitRow]:
    had = {table.identifier: table for table in known}
    rows = {identifier: _row(identifier, None, had, catalog) for identifier in (*plan.gone, *catalog.moved)}
    for each in plan.planned:
        identifier = each.change.identifier
        rows[identifier] = _row(identifier, each, had, catalog, made[identifier].oldest, number)
    return list(rows.values())


def _row(
    identifier: Identifier,
    planned: PlannedChange | None,
    had: Mapping[Identifier, IcebergTable],
    catalog: TableCatalog,
    oldest: int = 0,
    number: int = 0,
) -> CommitRow:
    before = had.get(identifier)
    pointer = CommitRow(
        names.namespace(identifier),
        identifier[-1],
        had=before.location if before else None,
        location=catalog.moved.get(identifier),
        is_moved=identifier in catalog.moved,
    )
    if planned is None:
        return pointer
    is_only_expiry = planned.change.columns is None and not planned.change.added
    return replace(
        pointer,
        dataset=planned.dataset,
        version=planned.version,
        table_id=planned.table_id,
        state_id=planned.state_id,
        oldest=oldest,
        newest=before.newest if is_only_expiry and before else number,
    )


def _dropped_locations(lake: Lake, known: Sequence[IcebergTable], plan: CommitPlan, catalog: TableCatalog) -> list[str]:
    """Return locations to remove of dropped tables: their folders, or in a bucket, their files."""
    gone = [table for table in known if table.identifier in plan.gone and table.location]
    if isinstance(lake.root, Path):
        return [names.folder(str(table.location)) for table in gone]
    return [path for table in gone for path in files_of(catalog.load(table.identifier, table.identifier))]


def _unused_paths(base: str, gone: Sequence[str], made: Mapping[Identifier, TableChangeResult]) -> list[str]:
    """Return paths in the lake that no table uses after the commit, including those of dropped tables."""
    locations = chain(gone, chain.from_iterable(changed.unused for changed in made.values()))
    return [_path_in_lake(base, location) for location in locations if location.startswith(f"{base}/{names.FOLDER}/")]
