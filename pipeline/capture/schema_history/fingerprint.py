"""By what a rewritten table is told from one that was not: which file it is in, and the versions of its columns' rows.

A fingerprint is read from the catalog as it is now, which may be later than the change that it was read for. What is
`settled` was so for that change already; of the rest, DDL between the change and the reading may be the cause.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class ColumnPrint:
    """A row of pg_attribute. `version` changes with every change of it, with harmless ones, too.

    `missing`: rows from before the column have a default that is in no file. `filled`: it may have a default at all.
    """

    version: str
    settled: bool
    missing: bool
    filled: bool


@dataclass(frozen=True)
class Fingerprint:
    """Of one table, its columns by attnum. `read_at`: where the source's WAL was when it was read."""

    file: int
    file_settled: bool
    read_at: int
    columns: Mapping[int, ColumnPrint] = field(default_factory=dict)

    @property
    def settled(self) -> bool:
        """Whether nothing of it is in doubt."""
        return self.file_settled and all(column.settled for column in self.columns.values())

    def settle(self) -> Fingerprint:
        """The table was changed after `read_at` and the source did not describe it again: it was so all the time."""
        columns = {attnum: replace(column, settled=True) for attnum, column in self.columns.items()}
        return replace(self, file_settled=True, columns=columns)

    def to_json(self) -> dict[str, Any]:
        """For `pipeline.relations.fingerprint`."""
        return {**asdict(self), "columns": {str(attnum): asdict(column) for attnum, column in self.columns.items()}}

    @staticmethod
    def from_json(stored: dict[str, Any]) -> Fingerprint:
        """What `to_json` made."""
        columns = {int(attnum): ColumnPrint(**column) for attnum, column in stored["columns"].items()}
        return Fingerprint(**{**stored, "columns": columns})
