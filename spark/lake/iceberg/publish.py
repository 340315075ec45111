"""Publishes a lake as Iceberg tables: all of them as of one seq, in one transaction of the pipeline database.

A commit goes through these steps. Its metadata is made in memory; the ledger gets the names of the files; the files are
written, whole and durable; one statement sets where the metadata of every table is, and the ledger's row. If it ends
before that, readers see what they saw, and the next run removes the files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

from lake.errors import TargetUnfit
from lake.iceberg import changed_table, names, rest
from lake.iceberg.changed_table import Catalog, Changed, Stamp
from lake.iceberg.ledger import Head, IcebergLedger, IcebergTable, Row, Settings
from lake.iceberg.names import Identifier
from lake.iceberg.plan import Plan, Planned, Planner, Root
from lake.iceberg.pointers import Pointers
from lake.iceberg.table_files import files_of
from lake.iceberg.withdrawn import sweep, withdraw
from lake.storage.identity import Lake


def publish(lake: Lake, settings: Settings, keep: float, behind: Iterable[Root] = ()) -> int | None:
    """Bring all Iceberg tables to what is exported; returns up to which seq they are, None when they were already.

    The lake's lock must be held. `behind`: tables whose current state is older, which leave the catalog meanwhile.
    Snapshots that were replaced `keep` seconds ago are taken out.
    """
    book, base = IcebergLedger(lake), base_of(lake)
    found = book.found()
    if found and (found["catalog"], found["uri"], found["location"]) != (settings.catalog, settings.uri, base):
        withdraw(lake)
    head = book.begin(settings, base)
    sweep(lake, book)
    upto, number = lake.ledger.exported_upto(lake.id), head.number + 1
    kept = book.kept(keep) or Head(number, upto)
    known = book.tables()
    catalog = catalog_of(settings, known)
    planner = Planner(
        lake, book, base, head, number, lambda table, name: _property(catalog, table, name), catalog.has_renames
    )
    plan = planner.plan(set(behind), kept)
    if not plan.planned and not plan.gone and upto == head.upto_seq:
        return None
    staged(lake, book, catalog, plan, Stamp(number, head.upto_seq, upto, kept.number), kept)()
    return upto


def staged(
    lake: Lake, book: IcebergLedger, catalog: Catalog, plan: Plan, stamp: Stamp, kept: Head
) -> Callable[[], None]:
    """Make and write what a commit needs; what is returned sets all tables, in one statement."""
    base, known = base_of(lake), book.tables()
    made = {each.change.identifier: changed_table.make(catalog, each.change, stamp) for each in plan.planned}
    gone = _gone(lake, known, plan, catalog)
    for identifier in plan.gone:
        catalog.drop(identifier)
    _write(lake, book, base, catalog.written)
    rows = _rows(known, plan, catalog, made, stamp.number)
    return partial(book.commit, Head(stamp.number, stamp.upto_seq), kept, rows, _unused(base, gone, made))


def catalog_of(settings: Settings, known: Sequence[IcebergTable]) -> Catalog:
    """Where these tables are."""
    if settings.uri:
        return rest.opened(settings.catalog, settings.uri)
    return Pointers({table.identifier: table.location for table in known if table.location})


def base_of(lake: Lake) -> str:
    """The lake's location. Raises TargetUnfit."""
    path = str(lake.root)
    if not isinstance(lake.root, Path):
        return path
    if "#" in path or "?" in path:
        raise TargetUnfit(f"{path} has a # or ? in it, which Iceberg's locations cannot have; move the lake")
    return f"file://{path}"


def _property(catalog: Catalog, table: Identifier, name: str) -> str | None:
    found = catalog.load(table, table).properties.get(name)
    return None if found is None else str(found)


def _write(lake: Lake, book: IcebergLedger, base: str, written: Mapping[str, bytes]) -> None:
    paths = {_path(base, location): content for location, content in written.items()}
    book.written(paths)
    lake.folder.write_all(paths)


def _path(base: str, location: str) -> str:
    return location.removeprefix(f"{base}/")


def _rows(
    known: Sequence[IcebergTable], plan: Plan, catalog: Catalog, made: Mapping[Identifier, Changed], number: int
) -> list[Row]:
    had = {table.identifier: table for table in known}
    rows = {identifier: _row(identifier, None, had, catalog) for identifier in (*plan.gone, *catalog.moved)}
    for each in plan.planned:
        identifier = each.change.identifier
        rows[identifier] = _row(identifier, each, had, catalog, made[identifier].oldest, number)
    return list(rows.values())


def _row(
    identifier: Identifier,
    planned: Planned | None,
    had: Mapping[Identifier, IcebergTable],
    catalog: Catalog,
    oldest: int = 0,
    number: int = 0,
) -> Row:
    before = had.get(identifier)
    pointer = Row(
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


def _gone(lake: Lake, known: Sequence[IcebergTable], plan: Plan, catalog: Catalog) -> list[str]:
    """Locations of all that is left of tables that go: of their folders, or where there are none, of their files."""
    gone = [table for table in known if table.identifier in plan.gone and table.location]
    if isinstance(lake.root, Path):
        return [names.folder(str(table.location)) for table in gone]
    return [path for table in gone for path in files_of(catalog.load(table.identifier, table.identifier))]


def _unused(base: str, gone: Sequence[str], made: Mapping[Identifier, Changed]) -> list[str]:
    """Files that no table makes use of after the commit, and what is left of those that are gone, as paths in the
    lake.
    """
    locations = chain(gone, chain.from_iterable(changed.unused for changed in made.values()))
    return [_path(base, location) for location in locations if location.startswith(f"{base}/{names.FOLDER}/")]
