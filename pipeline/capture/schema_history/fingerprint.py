"""Recognizes a rewritten table: by its file, and by the versions of its rows of pg_attribute.

A fingerprint is read from the current catalog, which may be later than the change for which it is read. Its `settled`
parts were already the same for that change; the others may come from DDL between the change and the reading.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class ColumnFingerprint:
    """The fingerprint of a row of pg_attribute. `version` changes with every change of the row, also with harmless
    ones.

    `missing`: rows older than the column have a default that is in no file. `filled`: the column may have, or have
    had, a default; for older servers. `attributes`: a JSON text with the names of the attributes of all composite
    types in its values, by the oid of the type's relation and by number; None: it has none, or an older server has
    not read them. `attributes_settled`: False if the attributes may have been others for the change.
    """

    version: str
    settled: bool
    missing: bool
    filled: bool
    attributes: str | None = None
    attributes_settled: bool = True

    @property
    def composites(self) -> dict[str, dict[str, str]]:
        """The attributes of each composite type, by number."""
        found: dict[str, dict[str, str]] = json.loads(self.attributes or "{}")
        return found

    def to_json(self) -> dict[str, Any]:
        """Return the stored form, which older servers read, too.

        They know no attributes, so these follow the version, which older servers compare.
        """
        version = f"{self.version} {self.attributes}" if self.attributes else self.version
        return {"version": version, "settled": self.settled, "missing": self.missing, "filled": self.filled}

    @staticmethod
    def from_json(stored: dict[str, Any]) -> ColumnFingerprint:
        """Read what `to_json` returned; `attributes_settled` is not stored, since it belongs to one reading."""
        version, _, attributes = stored["version"].partition(" ")
        return ColumnFingerprint(**{**stored, "version": version, "attributes": attributes or None})


@dataclass(frozen=True)
class TableFingerprint:
    """The fingerprint of a table, its columns by attnum. `read_at`: the end of the source's WAL at the reading."""

    file: int
    file_settled: bool
    read_at: int
    columns: Mapping[int, ColumnFingerprint] = field(default_factory=dict)

    @property
    def settled(self) -> bool:
        """True if all of it is settled."""
        return self.file_settled and all(column.settled for column in self.columns.values())

    def settle(self) -> TableFingerprint:
        """Return the fingerprint as settled: the table was the same for the change.

        That is certain if the table was locked from the change until the reading, or the reverse; or if rows were
        changed after `read_at` without a new description by the source.
        """
        columns = {attnum: replace(column, settled=True) for attnum, column in self.columns.items()}
        return replace(self, file_settled=True, columns=columns)

    @property
    def composites(self) -> dict[str, dict[str, str]]:
        """The attributes of all composite types in its values, by the oid of the type's relation and by number."""
        return {oid: names for column in self.columns.values() for oid, names in column.composites.items()}

    def with_attributes(self, now: TableFingerprint) -> TableFingerprint:
        """Return this fingerprint with the attributes of composite types that `now` has."""
        columns = {
            attnum: replace(column, attributes=now.columns[attnum].attributes) if attnum in now.columns else column
            for attnum, column in self.columns.items()
        }
        return replace(self, columns=columns)

    def settle_by(self, before: TableFingerprint | None) -> TableFingerprint:
        """Settle what is the same as in an earlier settled fingerprint, and so was the same in between."""
        if before is None:
            return self
        columns = {
            attnum: replace(column, settled=column.settled or _is_same(before.columns.get(attnum), column))
            for attnum, column in self.columns.items()
        }
        same_file = before.file_settled and before.file == self.file
        return replace(self, file_settled=self.file_settled or same_file, columns=columns)

    def to_json(self) -> dict[str, Any]:
        """Return the value of `pipeline.relations.fingerprint`."""
        return {**asdict(self), "columns": {str(attnum): column.to_json() for attnum, column in self.columns.items()}}

    @staticmethod
    def from_json(stored: dict[str, Any]) -> TableFingerprint:
        """Read what `to_json` returned."""
        columns = {int(attnum): ColumnFingerprint.from_json(column) for attnum, column in stored["columns"].items()}
        return TableFingerprint(**{**stored, "columns": columns})


def _is_same(before: ColumnFingerprint | None, now: ColumnFingerprint) -> bool:
    return before is not None and before.settled and before.version == now.version
