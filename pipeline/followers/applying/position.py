"""Stores the position of a follower, up to which it has applied the log, in the follower's own database.

The position moves in the transaction that applies the changes, so neither a crash nor a restore can separate the two.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from datetime import datetime

from psycopg import sql

from pipeline.errors import ApplierOvertakenError, FollowedTablesChangedError, FollowerError, FollowerReleasedError
from pipeline.postgres import connections, queries, session_settings
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

SCHEMA_VERSION = 6
"""The version of the schema `pipeline_follower`."""
_FOLDER = "followers.applying"
_BEGIN_POSITION = """\
insert into pipeline_follower.position (source_database_id, follower, source_epoch, seq, commit_lsn, committed_at)
values (%(source)s, %(follower)s, %(source_epoch)s, %(seq)s, %(commit_lsn)s, %(committed_at)s)
on conflict (source_database_id, follower) do nothing
"""
"""Store the first position of a follower, unless it has one."""
_CHANGE_TABLES = """\
update pipeline_follower.position set generation = generation + 1
where source_database_id = %(source)s and follower = %(follower)s
    and source_epoch = %(source_epoch)s and seq = %(seq)s and generation = %(generation)s
"""
"""Start a new generation, because the list of tables that follow the log changes at this position."""
_REOPEN_POSITION = """\
update pipeline_follower.position set released = null
where source_database_id = %(source)s and follower = %(follower)s and released < %(registration_id)s
"""
"""Let a later registration continue at the position where an earlier one was released."""


@dataclass(frozen=True)
class FollowerPosition:
    """The position up to which a follower has applied the log: all events up to `seq`.

    `commit_lsn`, `committed_at`: of the last applied transaction. `generation`: a number that grows when the list of
    tables that follow the log changes; an applier with an older number must not write.
    """

    source: uuid.UUID
    follower: str
    source_epoch: int = 0
    seq: int = 0
    commit_lsn: int | None = None
    committed_at: datetime | None = None
    generation: int = 0


def connect(dsn: str) -> Connection:
    """Return a session that may write to a follower. Raises DatabaseUnavailableError."""
    return connections.connect(dsn, "follower", name="pipeline follower", settings=session_settings.FOLLOWER)


def install(follower: Connection) -> None:
    """Create the schema `pipeline_follower` in a follower's database, or upgrade it.

    Raises FollowerError if a newer server has made it.
    """
    if schema_version(follower) == SCHEMA_VERSION:
        return
    with follower.transaction():
        lock(follower)
        if (found := schema_version(follower) or 0) > SCHEMA_VERSION:
            raise FollowerError(
                f"the schema pipeline_follower of this follower has version {found}, from a newer server; this server"
                f" knows version {SCHEMA_VERSION}: run the newer server"
            )
        follower.execute(
            sql.SQL(statement(_FOLDER, "install")).format(
                version=sql.Literal(f"version {SCHEMA_VERSION} of what appliers of the log keep here")
            )
        )


def lock(follower: Connection) -> None:
    """Let no other session create the schema `pipeline_follower` until the end of this transaction."""
    follower.execute("select pg_advisory_xact_lock(hashtext('pipeline_follower'))")


def schema_version(follower: Connection) -> int | None:
    """Return the version of the schema `pipeline_follower` from its comment; None if the schema does not exist."""
    found: int | None = queries.value(follower, statement(_FOLDER, "schema_version"))
    return found


def find(follower: Connection, source: uuid.UUID, name: str) -> FollowerPosition | None:
    """Return the follower's position; None if it has none."""
    values = {"source": source, "follower": name}
    return queries.one(follower, FollowerPosition, statement(_FOLDER, "find_position"), values)


def require_existing(follower: Connection, source: uuid.UUID, name: str, *, held: bool = False) -> FollowerPosition:
    """Return the position, locked if `held`. Raises FollowerError if the follower has none."""
    found = (find_and_lock if held else find)(follower, source, name)
    if found is None:
        raise FollowerError(f"follower {name} has no position: remove it, and add it again")
    return found


def begin(follower: Connection, position: FollowerPosition) -> bool:
    """Store a first position; returns False if the follower has a position, which is kept."""
    return follower.execute(_BEGIN_POSITION, vars(position)).rowcount == 1


def release(follower: Connection, source: uuid.UUID, name: str, registration_id: int) -> FollowerPosition | None:
    """Release the follower: no later transaction may move its position. Waits for the applier's open transaction.

    `registration_id`: the registration that ends; if one was released already, that stays stored. Returns the position,
    or None if the follower has none.
    """
    values = {"source": source, "follower": name, "registration_id": registration_id}
    return queries.one(follower, FollowerPosition, statement(_FOLDER, "release_position"), values)


def is_released(follower: Connection, source: uuid.UUID, name: str, registration_id: int) -> bool:
    """Return True if this registration, or a later one, has been released."""
    values = {"source": source, "follower": name}
    found = queries.value(follower, statement(_FOLDER, "find_released"), values)
    return found is not None and found >= registration_id


def reopen(follower: Connection, source: uuid.UUID, name: str, registration_id: int) -> None:
    """Let this registration continue at the position where an earlier one was released.

    Raises FollowerReleasedError if this registration itself was released.
    """
    values = {"source": source, "follower": name, "registration_id": registration_id}
    follower.execute(_REOPEN_POSITION, values)
    _require_unreleased(follower, source, name)


def _require_unreleased(follower: Connection, source: uuid.UUID, name: str) -> None:
    values = {"source": source, "follower": name}
    if queries.value(follower, statement(_FOLDER, "find_released"), values) is not None:
        raise FollowerReleasedError(f"follower {name} was released: nothing more is applied to it")


def move(follower: Connection, before: FollowerPosition, after: FollowerPosition) -> None:
    """Move the position, as the first statement of a transaction that applies changes; other appliers wait for its end.

    Raises ApplierOvertakenError if the position is not `before`, FollowedTablesChangedError if its generation is newer,
    and FollowerReleasedError if it was released.
    """
    values = {**vars(after), "epoch_before": before.source_epoch, "seq_before": before.seq}
    if follower.execute(statement(_FOLDER, "move_position"), values).rowcount != 1:
        _require_unreleased(follower, before.source, before.follower)
        raise _overtaken(before, find(follower, before.source, before.follower))


def change_tables(follower: Connection, here: FollowerPosition) -> FollowerPosition:
    """Start a new generation, when the list of tables that follow the log changes. Returns the new position.

    The applier must read the list again before it writes. A row lock makes the applier wait until this transaction
    commits. Raises ApplierOvertakenError, or its subclass FollowedTablesChangedError.
    """
    if follower.execute(_CHANGE_TABLES, vars(here)).rowcount != 1:
        raise _overtaken(here, find(follower, here.source, here.follower))
    return replace(here, generation=here.generation + 1)


def find_and_lock(follower: Connection, source: uuid.UUID, name: str) -> FollowerPosition | None:
    """Return the position and lock it until the end of the transaction; waits for a session that is moving it."""
    values = {"source": source, "follower": name}
    return queries.one(follower, FollowerPosition, statement(_FOLDER, "find_position") + "for update", values)


def require_unmoved(follower: Connection, here: FollowerPosition) -> None:
    """Raise ApplierOvertakenError, or its subclass FollowedTablesChangedError, if the position is no longer `here`."""
    if (found := find(follower, here.source, here.follower)) != here:
        raise _overtaken(here, found)


def _overtaken(before: FollowerPosition, found: FollowerPosition | None) -> ApplierOvertakenError:
    if found is not None and (found.source_epoch, found.seq) == (before.source_epoch, before.seq):
        return FollowedTablesChangedError(
            f"the list of tables of follower {before.follower} has changed; this applier has written nothing"
        )
    where = f"the position is seq {found.seq} now" if found else "the position no longer exists"
    return ApplierOvertakenError(
        f"another applier has moved the position of follower {before.follower}, which was at seq {before.seq}: {where};"
        " this applier has written nothing"
    )


def advance(
    position: FollowerPosition, source_epoch: int, seq: int, commit_lsn: int | None, committed_at: datetime
) -> FollowerPosition:
    """Return the position after a transaction."""
    return replace(position, source_epoch=source_epoch, seq=seq, commit_lsn=commit_lsn, committed_at=committed_at)
