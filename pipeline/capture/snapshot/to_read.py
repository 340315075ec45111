"""Estimates how much of the tables there is to read, and finds the rights that the reading role lacks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pipeline.capture.snapshot.plan import Extent
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.printable import sql


@dataclass(frozen=True)
class Relation(Extent):
    """A relation that holds rows of a table, and what `user`, who asks, may do there. `user` is quoted for SQL.

    `identified`: it has a key by which its rows are read in ranges. `hidden`: a policy would hide rows from the user.
    """

    identified: bool
    user: str
    schema: str
    may_use_schema: bool
    readable: bool
    hidden: bool

    @property
    def lacking(self) -> str | None:
        """The reason why the user cannot read the relation; None if the user can."""
        if not self.may_use_schema:
            return f"user {self.user} may not use the schema of {self.name}"
        if not self.readable:
            return f"user {self.user} may not read {self.name}"
        return f"row security hides rows of {self.name} from user {self.user}" if self.hidden else None

    @property
    def grants(self) -> tuple[str, ...]:
        """Statements by which an administrator lets the user read it."""
        return (
            *((f"grant usage on schema {self.schema} to {self.user}",) if not self.may_use_schema else ()),
            *((f"grant select on {self.name} to {self.user}",) if not self.readable else ()),
            *((f"alter role {self.user} with bypassrls",) if self.hidden else ()),
        )

    @property
    def refused(self) -> str | None:
        """The reason why the relation cannot be read, and the remedy; None if it can be read."""
        return f"{self.lacking}; run: {'; '.join(map(sql, self.grants))}" if self.lacking else None


def relations(source: Connection, tables: Iterable[int], *, sized: bool) -> list[Relation]:
    """Of these tables, by oid; of partitioned ones their leaves. `sized`: with sizes, which waits for locks on them."""
    values = {"oids": list(tables), "sized": sized}
    return queries.rows(source, Relation, statement("capture.snapshot", "relations_to_read"), values)
