"""What a follower knows of its copies, in its own database: `pipeline_follower.copies`.

A row is finished in the transaction that commits the rows of its table, so a crash leaves a table as it was or whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from psycopg.types.json import Jsonb

from pipeline.errors import ApplierOvertakenError
from pipeline.followers.applying import position
from pipeline.followers.applying.copied import Copied
from pipeline.followers.applying.position import Position
from pipeline.followers.applying.table_versions import LAST, CopiedForm, Place
from pipeline.followers.copying.source_forms import SourceForm
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_ROOM = "followers.copying"
_FIND_BEGINNING = """\
select registration from pipeline_follower.beginnings
where source_database_id = %(source)s and follower = %(follower)s
"""
"""With which registration the tables of a follower began."""
_FIND_COPIES = """\
select table_oid, source_epoch, snapshot, lsn, form from pipeline_follower.copies
where source_database_id = %(source)s and follower = %(follower)s and wanted_seq is null
order by table_oid
"""
"""The copies of a follower; one without a snapshot is not made yet. Without those that are made while it follows."""
_FIND_FORM = """\
select form from pipeline_follower.copies
where source_database_id = %(source)s and follower = %(follower)s and table_oid = %(oid)s and snapshot is null
"""
"""The form of the source's that a table has until its copy is made, where that is known."""
_LAST_FORM = """\
select form, coalesce(formed_epoch, source_epoch), coalesce(formed_lsn, lsn) from pipeline_follower.copies
where source_database_id = %(source)s and follower = %(follower)s and table_oid = %(oid)s
"""
"""The form of a table's copy, or of what it has until then, and the place of which that is."""
_HOLD_COPIES = """\
select from pipeline_follower.copies
where source_database_id = %(source)s and follower = %(follower)s and table_oid = any(%(oids)s)
order by table_oid for update
"""
"""Lock what is known of the copies of these tables, in one order."""
_WANT_COPIES = """\
insert into pipeline_follower.copies (source_database_id, follower, table_oid)
select %(source)s, %(follower)s, t.oid from unnest(%(oids)s::bigint[]) t (oid)
"""
"""Tables that are to be copied before the log is applied."""


def begin(follower: Connection, begins: Position, registration: int, tables: Iterable[int]) -> None:
    """Let a follower begin: at this position, with these tables to be copied. Nothing where it has begun.

    `registration`: the id of the follower's row. What an earlier one of that name has left of this is forgotten. Raises
    ApplierOvertakenError where a later one has begun meanwhile.
    """
    values = {**vars(begins), "registration": registration}
    with follower.transaction():
        position.lock(follower)
        known = queries.value(follower, _FIND_BEGINNING, values)
        if known == registration:
            return
        if known is not None and known > registration:
            raise ApplierOvertakenError(
                f"follower {begins.follower} was removed and added again: this is of before that"
            )
        follower.execute(statement(_ROOM, "drop_copies"), values)
        follower.execute(statement(_ROOM, "restart_position"), values)
        follower.execute(_WANT_COPIES, {**values, "oids": list(tables)})
        follower.execute(statement(_ROOM, "store_beginning"), values)


def request(follower: Connection, here: Position, tables: Iterable[int], *, first: bool = False) -> Position:
    """Let these tables be copied anew while the others follow the log; in a transaction, also the one that applies.

    `first`: also those that are to be copied before the log is applied.

    From this position on nothing of the log is applied to them, whatever it is, until their copies take their place.
    The rows stay as they are until then. A copy that is being made begins anew. Returns the position, which the caller
    has to go on with. Raises ApplierOvertakenError where the follower is not at `here`: look again where it is.
    """
    with follower.transaction():
        after = position.change_tables(follower, here)
        follower.execute(statement(_ROOM, "want_anew"), {**vars(after), "oids": list(tables), "first": first})
    return after


@dataclass(frozen=True)
class RequestedCopy:
    """A table, by its oid at the source, that is to be copied while the others follow the log from this seq on.

    `generation`: another one when it was wanted once more. `formed_epoch`, `formed_lsn`: the commit of which it
    has the form. `is_first`: it was never copied, so rows that it has are not of the source.
    """

    oid: int
    seq: int
    generation: int
    formed_epoch: int
    formed_lsn: int
    is_first: bool = False

    @property
    def formed(self) -> Place:
        """The form that it has until its copy takes its place."""
        return Place(self.formed_epoch, self.formed_lsn, 2**31 - 1)


def requested(follower: Connection, here: Position) -> list[RequestedCopy]:
    """Those that `want` has asked for, and that are not in their place yet."""
    return queries.rows(follower, RequestedCopy, statement(_ROOM, "find_wanted"), vars(here))


def finish_replacement(follower: Connection, here: Position, wanted: RequestedCopy, copied: Copied, rows: int) -> None:
    """In the transaction that holds the position and has brought the table there: it follows the log again.

    Raises ApplierOvertakenError where another copy of it was made meanwhile, or is wanted.
    """
    form = None if copied.form is None else Jsonb(copied.form)
    values = {**vars(here), **vars(copied), "form": form, "oid": wanted.oid, "rows": rows}
    values["generation"] = wanted.generation
    if follower.execute(statement(_ROOM, "place_copy"), values).rowcount != 1:
        raise ApplierOvertakenError(
            f"a table of follower {here.follower} was copied by another applier, or is to be copied once more; this"
            " one has written nothing"
        )
    position.change_tables(follower, here)


def forget(follower: Connection, here: Position, tables: Iterable[int]) -> None:
    """Tables that are followed no longer."""
    follower.execute(statement(_ROOM, "forget_copies"), {**vars(here), "oids": list(tables)})


def find(follower: Connection, here: Position) -> dict[int, Copied | None]:
    """By the table's oid at the source; None: still to be copied, before the log is applied.

    Without the tables of `wanted`.
    """
    found = follower.execute(_FIND_COPIES, vars(here)).fetchall()
    made = dict[int, Copied | None]()
    for oid, epoch, snapshot, lsn, form in found:
        columns = form if isinstance(form, list) else None  # of one that was dropped it is that of before
        made[oid] = None if snapshot is None else Copied(epoch, snapshot, lsn, columns)
    return made


def store_form(follower: Connection, here: Position, form: SourceForm, oid: int | None = None) -> None:
    """A table that is to be copied has this form of the source's until then.

    `oid`: the table's, if it takes the place of the one that has the form.
    """
    values = {**vars(here), "oid": oid or form.oid, "form": Jsonb(form.as_document())}
    follower.execute(statement(_ROOM, "store_form"), values)


def find_form(follower: Connection, here: Position, oid: int) -> SourceForm | CopiedForm | None:
    """What is known of the form of a table that is still to be copied: it was made, or copied before, with that."""
    return _form(queries.value(follower, _FIND_FORM, {**vars(here), "oid": oid}))


def last_form(follower: Connection, here: Position, oid: int) -> tuple[SourceForm | CopiedForm | None, Place | None]:
    """What is known of the form of a table that is copied, or to be, and as of which place; None if nothing is."""
    row = follower.execute(_LAST_FORM, {**vars(here), "oid": oid}).fetchone()
    if row is None:
        return None, None
    form, epoch, lsn = row
    place = None if epoch is None or lsn is None else Place(epoch, lsn, LAST)
    return _form(form), place


def lock(follower: Connection, here: Position, tables: Iterable[int]) -> None:
    """Until the end of the transaction nobody copies these; who is at it is waited for."""
    follower.execute(_HOLD_COPIES, {**vars(here), "oids": list(tables)})


def claim(follower: Connection, here: Position, oid: int) -> None:
    """In the transaction that copies, first: who else is at it, or moves the position, is waited for.

    Raises ApplierOvertakenError where the copy is made by now, or the position is another.
    """
    if follower.execute(statement(_ROOM, "take_copy"), {**vars(here), "oid": oid}).rowcount != 1:
        raise Overtaken(
            f"another applier has copied a table of follower {here.follower}, or moved its position; this one has"
            " written nothing"
        )


def finish(follower: Connection, here: Position, oid: int, copied: Copied, rows: int) -> None:
    """In the same transaction: its rows are there."""
    form = None if copied.form is None else Jsonb(copied.form)
    values = {**vars(here), **vars(copied), "form": form, "oid": oid, "rows": rows}
    follower.execute(statement(_ROOM, "finish_copy"), values)


def _form(stored: Any) -> SourceForm | CopiedForm | None:
    """As it is stored; `given_up`: of the last copy of a table that the source has dropped."""
    if not isinstance(stored, dict):
        return None if stored is None else list(stored)
    return list(stored["given_up"]) if "given_up" in stored else SourceForm(**stored)
