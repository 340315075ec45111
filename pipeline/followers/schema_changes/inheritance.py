"""Lets tables inherit, or no longer inherit, as the server found in the source's catalog.

A follower's tables are altered once the log is applied up to the place of that check. If the follower refuses that, the
log is still applied, because the rows of both tables are the same either way.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import psycopg
from psycopg import sql

from pipeline.followers.applying import truncates
from pipeline.followers.applying.position import FollowerPosition
from pipeline.followers.applying.table_versions import HistoryPlace
from pipeline.followers.copying import log_progress, refusals
from pipeline.followers.registry import RegisteredFollower, TableNote
from pipeline.followers.schema_changes.alterations import TableAlteration
from pipeline.followers.schema_changes.table_names import Name
from pipeline.postgres import connections, queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

AGAIN_SECONDS = 1.0
"""The pause before the next attempt to change a table that the follower refused to change."""
_ROOM = "followers.schema_changes"


@dataclass(frozen=True)
class _Change:
    """A change of inheritance, by the tables' oids. It happened before the place of `epoch` and `seen_lsn`."""

    child_oid: int
    parent_oid: int
    inherits: bool
    epoch: int
    seen_lsn: int


class InheritanceChanges:
    """Changes of inheritance of one follower's tables. `called`: the names of its tables, by oid."""

    def __init__(
        self, log: Connection, follower: Connection, registration: RegisteredFollower, called: Mapping[int, Name]
    ) -> None:
        self._log, self._follower, self._registration, self._called = log, follower, registration, called
        values = {
            "source": registration.source_id,
            "oids": list(called),
            "made_at": registration.made_at,
            "made_seq": registration.made_seq,
            "copy": registration.copy_mode,
        }
        self._changes = queries.rows(log, _Change, statement(_ROOM, "inheritance_changes"), values)
        self._pending = [each for each in self._changes if self._differs(each)]
        self._waits, self._not_before = dict[int, TableNote](), 0.0

    def follow_due(self, here: FollowerPosition) -> None:
        """Let tables inherit as the source's tables do, as far as the log is applied."""
        if not self._pending or self._registration.ddl == "stop" or time.monotonic() < self._not_before:
            return
        for each in list(self._pending):
            if log_progress.reaches(self._log, here, HistoryPlace(each.epoch, each.seen_lsn, 0)):
                note = self._alter(each) if self._differs(each) else None
                if note is None:
                    self._pending.remove(each)
                    self._waits.pop(each.child_oid, None)
                else:
                    self._waits[each.child_oid] = note
                    self._not_before = time.monotonic() + AGAIN_SECONDS

    def stop_inheriting(self, oid: int) -> None:
        """Let a table inherit from no other, in the open transaction, so that inherited columns can be altered.

        The table inherits again once its parent has these columns, too.
        """
        for each in self._changes:
            if each.child_oid == oid and each.inherits and self._registration.ddl != "stop" and self._inherits(each):
                self._follower.execute(self._alteration(replace(each, inherits=False)).statement)

    def notes(self) -> dict[int, TableNote]:
        """Return notes on tables that do not inherit as the source's tables do, by oid."""
        if self._registration.ddl != "stop":
            return self._waits
        return {each.child_oid: self._stays(each) for each in self._pending if self._differs(each)}

    def _differs(self, each: _Change) -> bool:
        return self._inherits(each) not in (None, each.inherits)

    def _inherits(self, each: _Change) -> bool | None:
        """Return True if the follower's table inherits; None if one of the two tables does not exist."""
        names = [*self._called[each.child_oid], *self._called[each.parent_oid]]
        values = dict(zip(("schema", "name", "parent_schema", "parent_name"), names, strict=True))
        found: bool | None = queries.value(self._follower, statement(_ROOM, "inherits"), values)
        return found

    def _alter(self, each: _Change) -> TableNote | None:
        """Change the inheritance; returns a note if that is not possible now."""
        altered = self._alteration(each)
        try:
            with self._follower.transaction(), queries.lock_timeout(self._follower, truncates.LOCK_TIMEOUT):
                self._follower.execute(altered.statement)
        except psycopg.errors.LockNotAvailable:
            tables = [sql.Identifier(*self._called[oid]) for oid in (each.child_oid, each.parent_oid)]
            return TableNote(str(truncates.locked_error(self._follower, tables, "a change of inheritance")))
        except psycopg.Error as error:
            if connections.is_gone(error) or connections.is_ours(error):
                raise
            remedy = f"see that `{altered.as_text(self._follower)}` can be run there; {refusals.AGAIN}"
            return TableNote(f"{altered.what}, and the follower refuses that: {refusals.server_message(error)}", remedy)
        return None

    def _stays(self, each: _Change) -> TableNote:
        altered = self._alteration(each)
        return TableNote(f"{altered.what}, and --ddl is stop", f"`{altered.as_text(self._follower)}` there")

    def _alteration(self, each: _Change) -> TableAlteration:
        child, parent = self._called[each.child_oid], self._called[each.parent_oid]
        what = "inherits from {} at the source" if each.inherits else "does not inherit from {} at the source"
        query = "alter table {} inherit {}" if each.inherits else "alter table {} no inherit {}"
        altered = sql.SQL(query).format(sql.Identifier(*child), sql.Identifier(*parent))
        return TableAlteration(what.format(".".join(parent)), altered)
