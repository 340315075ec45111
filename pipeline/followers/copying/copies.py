"""Stores the state of a follower's copies in its own database: `pipeline_follower.copies`.

One transaction commits the rows of a table and finishes its record. So after a crash, a table is unchanged or complete.
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
from pipeline.followers.applying.table_versions import LAST, CopiedForm, HistoryPlace
from pipeline.followers.copying.source_forms import SourceForm
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_ROOM = "followers.copying"
_FIND_BEGINNING = """\
select registration from pipeline_follower.beginnings
where source_database_id = %(source)s and follower = %(follower)s
"""
"""Read the registration with which the tables of a follower began."""
_FIND_COPIES = """\
select table_oid, source_epoch, snapshot, lsn, form from pipeline_follower.copies
where source_database_id = %(source)s and follower = %(follower)s and wanted_seq is null
order by table_oid
"""
"""List the copies of a follower that are made before the log is applied; a copy without a snapshot is unfinished."""
_FIND_FORM = """\
select form from pipeline_follower.copies
where source_database_id = %(source)s and follower = %(follower)s and table_oid = %(oid)s and snapshot is null
"""
"""Read the form of the source's table that a table has until its copy is finished, if known."""
_LAST_FORM = """\
select form, coalesce(formed_epoch, source_epoch), coalesce(formed_lsn, lsn) from pipeline_follower.copies
where source_database_id = %(source)s and follower = %(follower)s and table_oid = %(oid)s
"""
"""Read the form of a table's copy, or the form that it has until then, and the place in the log of that form."""
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


def begin(follower: Connection, begins: FollowerPosition, registration: int, tables: Iterable[int]) -> None:
    """Let a follower begin at this position, and request copies of these tables, unless it has begun already.

    `registration`: the id of the follower's row. The state of an earlier follower of the same name is deleted. Raises
    ApplierOvertakenError if a later registration has begun in the meantime.
    """
    values = {**vars(begins), "registration": registration}
    with follower.transaction():
        position.lock(follower)
        known = queries.value(follower, _FIND_BEGINNING, values)
        if known == registration:
            return
        if known is not None and known > registration:
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

    From this position on, no event is applied to these tables until their copies take their place. Their rows stay
    unchanged until then. A copy that is in progress starts again. Returns the position that the caller must use from
    now on. Raises ApplierOvertakenError if the follower is no longer at `here`: read its position again.
    """
    with follower.transaction():
        after = position.change_tables(follower, here)
        follower.execute(statement(_ROOM, "want_anew"), {**vars(after), "oids": list(tables), "first": first})
    return after


@dataclass(frozen=True)
class RequestedCopy:
    """A requested copy of a table, by its oid at the source; the other tables follow the log from `seq` on.

    `generation` changes with each request. `formed_epoch`, `formed_lsn`: the commit whose form the table has now.
    `is_first`: the table was never copied, so its rows are not the source's.
    """

    oid: int
    seq: int
    generation: int
    formed_epoch: int
    formed_lsn: int
    is_first: bool = False

    @property
    def formed(self) -> HistoryPlace:
        """The place in the log whose form the table has until its copy takes its place."""
        return HistoryPlace(self.formed_epoch, self.formed_lsn, 2**31 - 1)


def requested(follower: Connection, here: FollowerPosition) -> list[RequestedCopy]:
    """Return the copies that `request` asked for and that have not taken their place yet."""
    return queries.rows(follower, RequestedCopy, statement(_ROOM, "find_wanted"), vars(here))


def finish_replacement(
    follower: Connection, here: FollowerPosition, requested: RequestedCopy, copied: SnapshotCopy, rows: int
) -> None:
    """Record that a table's new copy has taken its place, so the table follows the log again.

    Call this in the transaction that holds the position and has applied the log to the copy up to there. Raises
    ApplierOvertakenError if another copy of the table was made or requested in the meantime.
    """
    form = None if copied.form is None else Jsonb(copied.form)
    values = {**vars(here), **vars(copied), "form": form, "oid": requested.oid, "rows": rows}
    values["generation"] = requested.generation
    if follower.execute(statement(_ROOM, "place_copy"), values).rowcount != 1:
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
    for oid, epoch, snapshot, lsn, form in found:
        columns = form if isinstance(form, list) else None  # a dropped table keeps an earlier form
        made[oid] = None if snapshot is None else SnapshotCopy(epoch, snapshot, lsn, columns)
    return made


def store_form(follower: Connection, here: FollowerPosition, form: SourceForm, oid: int | None = None) -> None:
    """Record that a table has this form of the source's table until its copy is finished.

    `oid`: the table's oid, if it takes the place of another table that has the form.
    """
    values = {**vars(here), "oid": oid or form.oid, "form": Jsonb(form.as_document())}
    follower.execute(statement(_ROOM, "store_form"), values)


def find_form(follower: Connection, here: FollowerPosition, oid: int) -> SourceForm | CopiedForm | None:
    """Return the form with which a table was created or copied before, until its next copy; None if unknown."""
    return _form(queries.value(follower, _FIND_FORM, {**vars(here), "oid": oid}))


def last_form(
    follower: Connection, here: FollowerPosition, oid: int
) -> tuple[SourceForm | CopiedForm | None, HistoryPlace | None]:
    """Return the last known form of a table that has or gets a copy, and its place in the log; None if unknown."""
    row = follower.execute(_LAST_FORM, {**vars(here), "oid": oid}).fetchone()
    if row is None:
        return None, None
    form, epoch, lsn = row
    place = None if epoch is None or lsn is None else HistoryPlace(epoch, lsn, LAST)
    return _form(form), place


def lock(follower: Connection, here: FollowerPosition, tables: Iterable[int]) -> None:
    """Keep other sessions from copying these tables until the transaction ends, after waiting for such a session."""
    follower.execute(_HOLD_COPIES, {**vars(here), "oids": list(tables)})


def claim(follower: Connection, here: FollowerPosition, oid: int) -> None:
    """Lock the unfinished copy of a table and the follower's position, as the first step of the copying transaction.

    This waits for a session that copies the table or moves the position. Raises ApplierOvertakenError if the copy is
    finished, or the position has changed.
    """
    if follower.execute(statement(_ROOM, "take_copy"), {**vars(here), "oid": oid}).rowcount != 1:
        raise ApplierOvertakenError(
            f"another applier has copied a table of follower {here.follower}, or moved its position; this applier has"
            " written nothing"
        )


def finish(follower: Connection, here: FollowerPosition, oid: int, copied: SnapshotCopy, rows: int) -> None:
    """Record that the rows of a copy are complete, in the transaction that wrote them."""
    form = None if copied.form is None else Jsonb(copied.form)
    values = {**vars(here), **vars(copied), "form": form, "oid": oid, "rows": rows}
    follower.execute(statement(_ROOM, "finish_copy"), values)


def _form(stored: Any) -> SourceForm | CopiedForm | None:
    """Return a stored form. `given_up`: the form of the last copy of a table that the source has dropped."""
    if not isinstance(stored, dict):
        return None if stored is None else list(stored)
    return list(stored["given_up"]) if "given_up" in stored else SourceForm(**stored)
