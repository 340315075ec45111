"""Compares two versions of a table: which values in the log are still those of the rows. Pure.

Decides for each column whether it is the same as before, and whether DDL may have rewritten its values without an
event. A doubtful column counts as another: then some values are not filled in, but never a wrong value is.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Literal

from pipeline.capture.schema_history.fingerprint import ColumnFingerprint, TableFingerprint
from pipeline.capture.schema_history.versions import ColumnName, HistoryVersion, PublishedColumn

Kind = Literal["type", "default", "values", "attributes", "renamed"]
"""How values changed without an event.

`type`: a column has another type; `default`: it was added with values in existing rows; `values`: it was rewritten
with the same type, by `alter type … using` or `set expression`, or that cannot be excluded; `attributes`: a composite
type in its values has got or lost attributes; `renamed`: only names of attributes have changed, so the values are the
same.
"""

OF_TYPES = frozenset[Kind]({"attributes", "renamed"})
"""The kinds that alter a composite type, while the table stays as it is."""

_TEXTS = frozenset({25, 1043})
"""text and varchar: between the two Postgres rewrites nothing, and the text of a value stays the same."""


@dataclass(frozen=True)
class ColumnRewrite:
    """Columns whose values changed without an event. `version` distinguishes rewrites of the same columns."""

    kind: Kind
    columns: tuple[str, ...]
    version: str


def first_version(version: HistoryVersion, since: tuple[int, int]) -> HistoryVersion:
    """Return the first known version of a table, whose columns get their first names."""
    return replace(version, columns=tuple(_new_names(column, since) for column in version.columns))


def altered_before(version: HistoryVersion, read: TableFingerprint | None) -> list[ColumnRewrite]:
    """Return the columns of a first version whose composite types were altered between the change and the reading."""
    found = [each for each in version.columns if (now := _column_print(read, each)) and not now.attributes_settled]
    return [_rewrite("attributes", found, read, (0, 0))] if found else []


def next_version(
    before: HistoryVersion,
    read_before: TableFingerprint | None,
    version: HistoryVersion,
    read: TableFingerprint | None,
    since: tuple[int, int],
) -> tuple[HistoryVersion, list[ColumnRewrite]]:
    """Return the version with the names of its columns, and the rewrites since the version before.

    A column's list of names begins again if older values no longer say what rows hold. That is so under another root,
    unless the table itself became a partition; and if no publication of updates had the table in the meantime.
    """
    previous = {column.attnum: column for column in before.columns if column.attnum is not None}
    named = {column.name: column for column in before.columns}
    moved = before.table_oid not in (version.table_oid, version.relation_oid)
    missed = not set(before.memberships or ()) & set(version.memberships or ())
    columns: list[PublishedColumn] = []
    found: dict[Kind, list[PublishedColumn]] = {}
    for column in version.columns:
        old = previous.get(column.attnum) if column.attnum is not None else None
        of_name = named.get(column.name)
        if old is None and of_name is not None and None in (of_name.attnum, column.attnum):
            kind = _rewritten_unplaced(of_name, read_before, column, read)
        else:
            kind = _rewritten(old, read_before, column, read)
        if kind:
            found.setdefault(kind, []).append(column)
        if old is None or (kind and kind != "renamed") or moved or missed or not prints_alike(old, column):
            columns.append(_new_names(column, since))
        else:
            columns.append(_continued(old, column, since))
    return replace(version, columns=tuple(columns)), [_rewrite(kind, found[kind], read, since) for kind in found]


def _rewritten(
    old: PublishedColumn | None,
    read_before: TableFingerprint | None,
    column: PublishedColumn,
    read: TableFingerprint | None,
) -> Kind | None:
    now = _column_print(read, column)
    if read is None or now is None:
        return None
    if old is None:  # in another file, values of a dropped default look like any others
        return "default" if now.missing or _may_be_another_file(read_before, read) else None
    if not _same_type(old, column):
        return "type"
    then = _column_print(read_before, column)
    if then is None:  # the table had been dropped before it could be read
        return None
    if not (then.settled and then.version == now.version) and _may_be_another_file(read_before, read):
        return "values"
    return altered_attributes(then, now)


def altered_attributes(then: ColumnFingerprint, now: ColumnFingerprint) -> Kind | None:
    """Return what has happened to the composite types in the values of a column; None if nothing."""
    if None in (then.attributes, now.attributes) or then.composites == now.composites:
        return None
    before, after = ({oid: names.keys() for oid, names in each.composites.items()} for each in (then, now))
    return "renamed" if before == after else "attributes"


def _rewritten_unplaced(
    old: PublishedColumn, read_before: TableFingerprint | None, column: PublishedColumn, read: TableFingerprint | None
) -> Kind | None:
    """Return the rewrite of a column that may or may not be the earlier column of that name; None if none.

    It may have been added in place of the earlier column.
    """
    if read is None:
        return None
    if not _same_type(old, column):
        return "type"
    now = _column_print(read, column)
    if now is None:
        return "values"  # the values are NULL if it was dropped and added again
    if read_before is None:
        return None
    if now.missing:
        return "default"
    # A column older than all that the slot may still send existed for the earlier version, too.
    return None if now.settled and not _may_be_another_file(read_before, read) else "values"


def _column_print(read: TableFingerprint | None, column: PublishedColumn) -> ColumnFingerprint | None:
    return None if read is None or column.attnum is None else read.columns.get(column.attnum)


def _may_be_another_file(read_before: TableFingerprint | None, read: TableFingerprint) -> bool:
    return read_before is None or not read_before.file_settled or read_before.file != read.file


def _same_type(old: PublishedColumn, column: PublishedColumn) -> bool:
    return old.type_oid == column.type_oid or {old.type_oid, column.type_oid} <= _TEXTS


def prints_alike(old: PublishedColumn, column: PublishedColumn) -> bool:
    """True if both columns have the same text for the same value."""
    texts = {old.base_type_oid, column.base_type_oid}
    return _same_type(old, column) and (len(texts) == 1 or texts <= _TEXTS)


def _rewrite(
    kind: Kind, columns: list[PublishedColumn], read: TableFingerprint | None, since: tuple[int, int]
) -> ColumnRewrite:
    """Return a rewrite of these columns; `since` distinguishes rewrites of columns whose numbers are not certain."""
    prints = [found for column in columns if (found := _column_print(read, column))]
    versions = [found.version for found in prints]
    if kind in OF_TYPES:
        versions = [hashlib.sha256(str(found.attributes).encode()).hexdigest() for found in prints]
    if len(prints) < len(columns):
        versions.append(f"from {since[0]} {since[1]}")
    return ColumnRewrite(kind, tuple(column.name for column in columns), " ".join(versions))


def _new_names(column: PublishedColumn, since: tuple[int, int]) -> PublishedColumn:
    return replace(column, names=(ColumnName(column.name, *since),))


def _continued(old: PublishedColumn, column: PublishedColumn, since: tuple[int, int]) -> PublishedColumn:
    names = tuple(name for name in old.names if (name.lsn, name.idx) < since)  # later names are from a failed attempt
    if not names:
        return _new_names(column, since)
    if names[-1].name != column.name:
        names = (*names, ColumnName(column.name, *since))
    return replace(column, names=names)
