"""Prepares composite types for the copy of a table: alters them before the copy, and checks them after its last row."""

from __future__ import annotations

import threading

from pipeline.errors import FollowedTablesChangedError
from pipeline.followers.applying import position
from pipeline.followers.applying.position import FollowerPosition
from pipeline.followers.applying.table_versions import HistoryPlace
from pipeline.followers.copying import copies, log_progress
from pipeline.followers.copying.source_tables import CopyDelayedError, write_marker
from pipeline.followers.registry import RegisteredFollower
from pipeline.followers.schema_changes import composites, rewritten_tables, type_alterations
from pipeline.followers.schema_changes.composites import TypeDifference
from pipeline.followers.schema_changes.renames import TableRenames
from pipeline.followers.schema_changes.table_names import Name
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement


class TypePreparer:
    """Prepares the composite types of one follower for copies. May be used by several threads, each with its own
    connections.
    """

    def __init__(
        self, log: Connection, registration: RegisteredFollower, renames: TableRenames, *, applies: bool
    ) -> None:
        """`applies`: True if the log is applied at the same time to the tables that are not copied."""
        self._log, self._registration, self._renames, self._applies = log, registration, renames, applies
        self._lock = threading.Lock()
        self._since = dict[tuple[int, str], HistoryPlace]()
        self._states = dict[int, list[object]]()

    def align(self, source: Connection, follower: Connection, oid: int) -> None:
        """Give the types in a table, by its oid at the source, the attributes that the source's types have.

        Raises CopyDelayedError while the follower must still apply older values, and FollowedTablesChangedError if
        other tables must be copied as well. Raises SchemaChangeError if the settings forbid the change, or the follower
        refuses it.
        """
        with self._lock, follower.transaction():
            position.lock(follower)
            here = position.require_existing(follower, self._registration.source_id, self._registration.name)
            listed = composites.differences_of_copy(source, follower, here, oid)
            self._states[oid] = _states(listed)
            are_aligned = [self._align(source, follower, here, each) for each in listed]
        if not all(are_aligned):
            raise FollowedTablesChangedError(
                f"tables of follower {self._registration.name} must be copied together, because they share a type"
            )

    def require_same(self, source: Connection, follower: Connection, oid: int) -> None:
        """Raise CopyDelayedError if a type of the table was altered since `align`, at either side."""
        here = position.require_existing(follower, self._registration.source_id, self._registration.name)
        listed = composites.differences_of_copy(source, follower, here, oid)
        if _states(listed) != self._states.get(oid) or not all(each.is_same for each in listed):
            raise CopyDelayedError("a type of its values was altered while it was copied")

    def _align(self, source: Connection, follower: Connection, here: FollowerPosition, of: TypeDifference) -> bool:
        """Alter a type if necessary; returns False if tables that have the type must be copied again first."""
        held = self._tables_with_values(follower, here, of)
        if of.is_same:
            if not of.is_known and not held:
                type_alterations.run(follower, self._registration, of.record(here))
            return True
        if held and not (of.is_clear and self._applies):
            values = {oid: [rewritten_tables.OF_COMPOSITES] for oid in held}
            return not rewritten_tables.request_copies(follower, self._registration, here, held, values)
        if held:
            self._require_past(source, here, of)
        type_alterations.run(follower, self._registration, of.alteration(here))
        return True

    def _tables_with_values(self, follower: Connection, here: FollowerPosition, of: TypeDifference) -> dict[int, Name]:
        """Return the tables that have values of a type and do not wait for a copy."""
        waiting = {oid for oid, copy in copies.find(follower, here).items() if copy is None}
        waiting |= {each.oid for each in copies.requested(follower, here)}
        tables = {table for table, _ in of.at_follower.columns}
        called = self._renames.called(follower)
        return {oid: name for oid, name in called.items() if oid not in waiting and ".".join(name) in tables}

    def _require_past(self, source: Connection, here: FollowerPosition, of: TypeDifference) -> None:
        """Raise CopyDelayedError until the follower has applied all values from before the type was altered."""
        key = (of.at_source.oid, str(of.at_source.parts))
        if key not in self._since:
            epoch = queries.value(self._log, statement("followers.copying", "source_epoch"), {"source": here.source})
            self._since[key] = HistoryPlace(epoch, write_marker(source), 0)
        if not log_progress.reaches(self._log, here, self._since[key]):
            raise CopyDelayedError(
                f"waits until the follower has applied all values of type {of.at_follower} from before it was altered"
            )


def _states(listed: list[TypeDifference]) -> list[object]:
    return [(each.at_source.oid, each.at_source.parts) for each in listed]
