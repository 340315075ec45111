"""What reading tables will be like: how much there is, and what keeps this user from reading it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pipeline.capture.snapshot.plan import Extent
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement


@dataclass(frozen=True)
class Relation(Extent):
    """A relation that holds rows of a table. `hidden`: a policy would hide rows of it from this user.

    `identified`: it has a key by which its rows are read in ranges.
    """

    identified: bool
    readable: bool
    hidden: bool

    @property
    def refused(self) -> str | None:
        """Why it cannot be read, and the remedy; None when it can."""
        if not self.readable:
            return f"this user may not read {self.name}; grant select on it"
        if self.hidden:
            return f"row security hides rows of {self.name} from this user; alter role … bypassrls, or let it own that"
        return None


def relations(source: Connection, tables: Iterable[int], *, sized: bool) -> list[Relation]:
    """Of these tables, by oid; of partitioned ones their leaves. `sized`: with sizes, which waits for locks on them."""
    values = {"oids": list(tables), "sized": sized}
    return queries.rows(source, Relation, statement("capture.snapshot", "relations_to_read"), values)
