"""Composite types that a copy needs as the source's are: altered before it, and the same until its last row is read."""

from __future__ import annotations

import threading

from pipeline.errors import FollowedTablesChangedError
from pipeline.followers.applying import position
from pipeline.followers.applying.position import FollowerPosition
from pipeline.followers.applying.table_versions import HistoryPlace
from pipeline.followers.copying import copies, log_progress
from pipeline.followers.copying.source_tables import CopyDelayedError, write_marker
from pipeline.followers.registry import RegisteredFollower
from pipeline.followers.schema_changes import altered_types, composites, rewritten_tables
from pipeline.followers.schema_changes.composites import TypeDifference
from pipeline.followers.schema_changes.renames import TableRenames
from pipeline.followers.schema_changes.table_names import Name
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement


class CopiedTypes:
    """Of one follower. May be used by several threads, each with connections of its own."""

    def __init__(
        self, log: Connection, registration: RegisteredFollower, renames: TableRenames, *, applies: bool
    ) -> None:
        """`applies`: True if the log is applied meanwhile to the tables that are not copied."""
        self._log, self._registration, self._renames, self._applies = log, registration, renames, applies
        self._one_at_a_time = threading.Lock()
        self._since = dict[tuple[int, str], HistoryPlace]()
        self._brought = dict[int, list[object]]()

    def bring(self, source: Connection, follower: Connection, oid: int) -> None:
        """Give the types in a table, by its oid at the source, the attributes that the source's types have.

        Raises CopyDelayedError while the follower must still apply older values, and FollowedTablesChangedError if
        other tables must be copied as well. Raises SchemaChangeError if the settings forbid the change, or the follower
        refuses it.
        """
        with self._one_at_a_time, follower.transaction():
            position.lock(follower)
            here = position.require_existing(follower, self._registration.source_id, self._registration.name)
            listed = composites.of_copy(source, follower, here, oid)
            self._brought[oid] = _states(listed)
            are_brought = [self._is_brought(source, follower, here, each) for each in listed]
        if not all(are_brought):
            raise FollowedTablesChangedError(
                f"tables of follower {self._registration.name} are to be copied together, for a type of theirs"
            )

    def require_same(self, source: Connection, follower: Connection, oid: int) -> None:
        """Raises CopyDelayedError if a type of the table was altered since `bring`, at either side."""
        here = position.require_existing(follower, self._registration.source_id, self._registration.name)
        listed = composites.of_copy(source, follower, here, oid)
        if _states(listed) != self._brought.get(oid) or not all(each.is_same for each in listed):
            raise CopyDelayedError("a type of its values was altered while it was copied")

    def _is_brought(self, source: Connection, follower: Connection, here: FollowerPosition, of: TypeDifference) -> bool:
        """False if tables that have the type are to be copied anew first, as of now."""
        held = self._held(follower, here, of)
        if of.is_same:
            if not of.is_known and not held:
                altered_types.run(follower, self._registration, of.stored(here))
            return True
        if held and not (of.is_clear and self._applies):
            values = {oid: [rewritten_tables.OF_COMPOSITES] for oid in held}
            return not rewritten_tables.request_copies(follower, self._registration, here, held, values)
        if held:
            self._require_past(source, here, of)
        altered_types.run(follower, self._registration, of.alteration(here))
        return True

    def _held(self, follower: Connection, here: FollowerPosition, of: TypeDifference) -> dict[int, Name]:
        """Tables that have values of a type and are not to be copied anew."""
        copied = {oid for oid, made in copies.find(follower, here).items() if made is None}
        copied |= {each.oid for each in copies.requested(follower, here)}
        tables = {table for table, _ in of.here.columns}
        called = self._renames.called(follower)
        return {oid: name for oid, name in called.items() if oid not in copied and ".".join(name) in tables}

    def _require_past(self, source: Connection, here: FollowerPosition, of: TypeDifference) -> None:
        """Raises CopyDelayedError until the follower has applied all values from before the type was altered."""
        key = (of.there.oid, str(of.there.parts))
        if key not in self._since:
            epoch = queries.value(self._log, statement("followers.copying", "source_epoch"), {"source": here.source})
            self._since[key] = HistoryPlace(epoch, write_marker(source), 0)
        if not log_progress.reaches(self._log, here, self._since[key]):
            raise CopyDelayedError(
                f"waits until the follower has applied all values of type {of.here} from before it was altered"
            )


def _states(listed: list[TypeDifference]) -> list[object]:
    return [(each.there.oid, each.there.parts) for each in listed]
