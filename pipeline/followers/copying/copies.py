"""Stores the state of a follower's copies in its own database: `pipeline_follower.copies` has a record of each table.

The transaction that writes the rows of a table also finishes its record. So after a crash, a table is either unchanged
or completely copied.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from psycopg.types.json import Jsonb

from pipeline.errors import ApplierOvertakenError
from pipeline.followers.applying import position
from pipeline.followers.applying.position import FollowerPosition
from pipeline.followers.applying.snapshot_copy import SnapshotCopy
from pipeline.followers.applying.table_versions import LAST, CopiedColumns, HistoryPlace
from pipeline.followers.copying.source_definitions import SourceDefinition
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_ROOM = "followers.copying"
_FIND_BEGINNING = """\
select registration from pipeline_follower.beginnings
where source_database_id = %(source)s and follower = %(follower)s
"""
"""Read the id of the registration with which a follower began."""
_FIND_COPIES = """\
select table_oid, source_epoch, snapshot, lsn, form from pipeline_follower.copies
where source_database_id = %(source)s and follower = %(follower)s and wanted_seq is null
order by table_oid
"""
"""List a follower's copies, except copies again while the log is applied. Without a snapshot, one is unfinished."""
_FIND_DEFINITION = """\
select form from pipeline_follower.copies
where source_database_id = %(source)s and follower = %(follower)s and table_oid = %(oid)s and snapshot is null
"""
"""Read the definition that a table has until its copy is finished, if known."""
_LAST_DEFINITION = """\
select form, coalesce(formed_epoch, source_epoch), coalesce(formed_lsn, lsn) from pipeline_follower.copies
where source_database_id = %(source)s and follower = %(follower)s and table_oid = %(oid)s
"""
"""Read the last definition of a table, of its copy or until its copy is finished, and its place in the history."""
_HOLD_COPIES = """\
select from pipeline_follower.copies
where source_database_id = %(source)s and follower = %(follower)s and table_oid = any(%(oids)s)
order by table_oid for update
"""
"""Lock the records of these tables' copies, always in the same order, so that two sessions cannot deadlock."""
_WANT_COPIES = """\
insert into pipeline_follower.copies (source_database_id, follower, table_oid)
select %(source)s, %(follower)s, t.oid from unnest(%(oids)s::bigint[]) t (oid)
"""
"""Request copies that must be finished before the log is applied."""


def begin(follower: Connection, begins: FollowerPosition, registration_id: int, tables: Iterable[int]) -> None:
    """Let a follower begin at this position, and request copies of these tables, unless it has begun already.

    `registration_id`: the id of the follower's row. The state of an earlier registration of the same name is deleted.
    Raises ApplierOvertakenError if a later registration has begun in the meantime.
    """
    values = {**vars(begins), "registration_id": registration_id}
    with follower.transaction():
        position.lock(follower)
        known = queries.value(follower, _FIND_BEGINNING, values)
        if known == registration_id:
            return
        if known is not None and known > registration_id:
            raise ApplierOvertakenError(
                f"follower {begins.follower} was removed and added again; this applier works for the removed follower"
            )
        follower.execute(statement(_ROOM, "drop_copies"), values)
        follower.execute(statement(_ROOM, "restart_position"), values)
        follower.execute(_WANT_COPIES, {**values, "oids": list(tables)})
        follower.execute(statement(_ROOM, "store_beginning"), values)


def request(
    follower: Connection, here: FollowerPosition, tables: Iterable[int], *, first: bool = False
) -> FollowerPosition:
    """Request new copies of these tables; the other tables follow the log in the meantime.

    `first`: include tables whose first copy must be finished before the log is applied. May run in the transaction of
    an applier.

    From this position on, no event is applied to these tables until their copies replace their rows, which stay
    unchanged until then. A copy that is in progress starts again. Returns the position that the caller must use from
    now on. Raises ApplierOvertakenError if the follower is no longer at `here`: read its position again.
    """
    with follower.transaction():
        after = position.change_tables(follower, here)
        follower.execute(statement(_ROOM, "request_copies"), {**vars(after), "oids": list(tables), "first": first})
    return after


@dataclass(frozen=True)
class RequestedCopy:
    """A requested copy of a table, by its oid at the source; the other tables follow the log from `seq` on.

    `generation` changes with each request. `version_epoch`, `version_lsn`: the commit at which the source's table had
    the version that the table has now. `is_first`: the table was never copied, so its rows are not the source's.
    """

    oid: int
    seq: int
    generation: int
    version_epoch: int
    version_lsn: int
    is_first: bool = False

    @property
    def version_place(self) -> HistoryPlace:
        """The place of the version that the table has until the copy replaces its rows."""
        return HistoryPlace(self.version_epoch, self.version_lsn, LAST)


def requested(follower: Connection, here: FollowerPosition) -> list[RequestedCopy]:
    """Return the copies that `request` asked for and that have not replaced the rows of their tables yet."""
    return queries.rows(follower, RequestedCopy, statement(_ROOM, "find_requested"), vars(here))


def finish_replacement(
    follower: Connection, here: FollowerPosition, request: RequestedCopy, copy: SnapshotCopy, rows: int
) -> None:
    """Record that a table's new copy has replaced its rows, so the table follows the log again.

    Call this in the transaction that holds the position and has applied the log to the copy up to there. Raises
    ApplierOvertakenError if another copy of the table was made or requested in the meantime.
    """
    values = {**vars(here), **vars(copy), "form": _stored_columns(copy), "oid": request.oid, "rows": rows}
    values["generation"] = request.generation
    if follower.execute(statement(_ROOM, "finish_replacement"), values).rowcount != 1:
        raise ApplierOvertakenError(
            f"a table of follower {here.follower} was copied by another applier, or another copy was requested; this"
            " applier has written nothing"
        )
    position.change_tables(follower, here)


def forget(follower: Connection, here: FollowerPosition, tables: Iterable[int]) -> None:
    """Delete the state of tables that are no longer followed."""
    follower.execute(statement(_ROOM, "forget_copies"), {**vars(here), "oids": list(tables)})


def find(follower: Connection, here: FollowerPosition) -> dict[int, SnapshotCopy | None]:
    """Return the copies by the tables' oids at the source; None for a copy that must still be made before the log is
    applied.

    Tables that `requested` returns are not included.
    """
    found = follower.execute(_FIND_COPIES, vars(here)).fetchall()
    made = dict[int, SnapshotCopy | None]()
    for oid, epoch, snapshot, lsn, stored in found:
        columns = stored if isinstance(stored, list) else None  # a dropped table keeps an earlier definition
        made[oid] = None if snapshot is None else SnapshotCopy(epoch, snapshot, lsn, columns)
    return made


def store_definition(
    follower: Connection, here: FollowerPosition, definition: SourceDefinition, oid: int | None = None
) -> None:
    """Record that a table has this definition until its copy is finished.

    `oid`: the table's oid, if it replaces another table, which has the definition.
    """
    values = {**vars(here), "oid": oid or definition.oid, "form": Jsonb(definition.as_document())}
    follower.execute(statement(_ROOM, "store_definition"), values)


def find_definition(follower: Connection, here: FollowerPosition, oid: int) -> SourceDefinition | CopiedColumns | None:
    """Return the definition, or the copied columns, that a table has until its next copy; None if unknown."""
    return _definition(queries.value(follower, _FIND_DEFINITION, {**vars(here), "oid": oid}))


def last_definition(
    follower: Connection, here: FollowerPosition, oid: int
) -> tuple[SourceDefinition | CopiedColumns | None, HistoryPlace | None]:
    """Return the last known definition or copied columns of a table that has or gets a copy, and their place."""
    row = follower.execute(_LAST_DEFINITION, {**vars(here), "oid": oid}).fetchone()
    if row is None:
        return None, None
    stored, epoch, lsn = row
    place = None if epoch is None or lsn is None else HistoryPlace(epoch, lsn, LAST)
    return _definition(stored), place


def lock(follower: Connection, here: FollowerPosition, tables: Iterable[int]) -> None:
    """Keep other sessions from copying these tables until the transaction ends. Waits for a session that copies one."""
    follower.execute(_HOLD_COPIES, {**vars(here), "oids": list(tables)})


def claim(follower: Connection, here: FollowerPosition, oid: int) -> None:
    """Lock the unfinished copy of a table and the follower's position, as the first step of the copying transaction.

    This waits for a session that copies the table or moves the position. Raises ApplierOvertakenError if the copy is
    finished, or the position has changed.
    """
    if follower.execute(statement(_ROOM, "lock_copy"), {**vars(here), "oid": oid}).rowcount != 1:
        raise ApplierOvertakenError(
            f"another applier has copied a table of follower {here.follower}, or moved its position; this applier has"
            " written nothing"
        )


def finish(follower: Connection, here: FollowerPosition, oid: int, copy: SnapshotCopy, rows: int) -> None:
    """Record that the rows of a copy are complete, in the transaction that wrote them."""
    values = {**vars(here), **vars(copy), "form": _stored_columns(copy), "oid": oid, "rows": rows}
    follower.execute(statement(_ROOM, "finish_copy"), values)


def _stored_columns(copy: SnapshotCopy) -> Jsonb | None:
    return None if copy.columns is None else Jsonb(copy.columns)


def _definition(stored: Any) -> SourceDefinition | CopiedColumns | None:
    """Return the value of the column `form`. `given_up`: the columns of the last copy of a table that was dropped."""
    if not isinstance(stored, dict):
        return None if stored is None else list(stored)
    return list(stored["given_up"]) if "given_up" in stored else SourceDefinition(**stored)
