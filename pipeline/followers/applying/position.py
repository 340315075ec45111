"""Up to where the log is in a follower: one row per source and follower, in the follower's own database.

The row moves in the transaction that writes what it says, so the two cannot part: not by a crash, not by a restore.
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

VERSION = 6
"""Of the schema `pipeline_follower`."""
_ROOM = "followers.applying"
_BEGIN_POSITION = """\
insert into pipeline_follower.position (source_database_id, follower, source_epoch, seq, commit_lsn, committed_at)
values (%(source)s, %(follower)s, %(source_epoch)s, %(seq)s, %(commit_lsn)s, %(committed_at)s)
on conflict (source_database_id, follower) do nothing
"""
"""A follower begins there; one that has a position keeps it."""
_CHANGE_TABLES = """\
update pipeline_follower.position set generation = generation + 1
where source_database_id = %(source)s and follower = %(follower)s
    and source_epoch = %(source_epoch)s and seq = %(seq)s and generation = %(generation)s
"""
"""From this position on other tables follow the log."""
_REOPEN_POSITION = """\
update pipeline_follower.position set released = null
where source_database_id = %(source)s and follower = %(follower)s and released < %(registration)s
"""
"""A later registration goes on from where an earlier one was released."""


@dataclass(frozen=True)
class FollowerPosition:
    """Everything up to `seq` is in the follower: `commit_lsn` and `committed_at` are of the last transaction.

    `generation` grows whenever other tables follow the log from there on: whoever knows an older one writes nothing.
    """

    source: uuid.UUID
    follower: str
    source_epoch: int = 0
    seq: int = 0
    commit_lsn: int | None = None
    committed_at: datetime | None = None
    generation: int = 0


def connect(dsn: str) -> Connection:
    """A session that may write to a follower. Raises DatabaseUnavailableError."""
    return connections.connect(dsn, "follower", name="pipeline follower", settings=session_settings.FOLLOWER)


def install(follower: Connection) -> None:
    """Make what a follower's database needs of ours; nothing where it is there.

    Raises FollowerError where a newer version of this server has made it.
    """
    if installed_version(follower) == VERSION:
        return
    with follower.transaction():
        lock(follower)
        if (found := installed_version(follower) or 0) > VERSION:
            raise FollowerError(
                f"the schema pipeline_follower of this follower is of version {found}, made by a newer server;"
                f" this one knows version {VERSION}: run the newer one"
            )
        follower.execute(
            sql.SQL(statement(_ROOM, "install")).format(
                version=sql.Literal(f"version {VERSION} of what appliers of the log keep here")
            )
        )


def lock(follower: Connection) -> None:
    """Until the end of the transaction, nobody else makes anything of ours there."""
    follower.execute("select pg_advisory_xact_lock(hashtext('pipeline_follower'))")


def installed_version(follower: Connection) -> int | None:
    """The version of the schema `pipeline_follower`, which its comment begins with; None where there is none."""
    found: int | None = queries.value(follower, statement(_ROOM, "installed_version"))
    return found


def find(follower: Connection, source: uuid.UUID, name: str) -> FollowerPosition | None:
    """The follower's position; None where it has none."""
    values = {"source": source, "follower": name}
    return queries.one(follower, FollowerPosition, statement(_ROOM, "find_position"), values)


def require_existing(follower: Connection, source: uuid.UUID, name: str, *, held: bool = False) -> FollowerPosition:
    """As `find`, or as `find_and_lock`. Raises FollowerError where the follower has none."""
    found = (find_and_lock if held else find)(follower, source, name)
    if found is None:
        raise FollowerError(f"follower {name} has no position: remove it, and add it again")
    return found


def begin(follower: Connection, position: FollowerPosition) -> bool:
    """Begin at this position; one that is there is kept, and that is False."""
    return follower.execute(_BEGIN_POSITION, vars(position)).rowcount == 1


def release(follower: Connection, source: uuid.UUID, name: str, registration: int) -> FollowerPosition | None:
    """End this registration at the position, whoever applies: what is being applied is waited for, nothing comes after.

    Where it was released before, nothing changes. None where there is no position.
    """
    values = {"source": source, "follower": name, "registration": registration}
    return queries.one(follower, FollowerPosition, statement(_ROOM, "release_position"), values)


def is_released(follower: Connection, source: uuid.UUID, name: str, registration: int) -> bool:
    """Whether this registration, or a later one, has been released."""
    values = {"source": source, "follower": name}
    found = queries.value(follower, statement(_ROOM, "find_released"), values)
    return found is not None and found >= registration


def reopen(follower: Connection, source: uuid.UUID, name: str, registration: int) -> None:
    """Let this registration go on from where an earlier one was released.

    Raises FollowerReleasedError where it was itself.
    """
    values = {"source": source, "follower": name, "registration": registration}
    follower.execute(_REOPEN_POSITION, values)
    _require_unreleased(follower, source, name)


def _require_unreleased(follower: Connection, source: uuid.UUID, name: str) -> None:
    values = {"source": source, "follower": name}
    if queries.value(follower, statement(_ROOM, "find_released"), values) is not None:
        raise FollowerReleasedError(f"follower {name} was released: nothing more is applied to it")


def move(follower: Connection, before: FollowerPosition, after: FollowerPosition) -> None:
    """Move it, in the transaction that applies, as its first statement: the row lock makes another applier wait.

    Raises ApplierOvertakenError when it is not at `before`, FollowedTablesChangedError when other tables follow the log
    from there on, and FollowerReleasedError where it was released.
    """
    values = {**vars(after), "epoch_before": before.source_epoch, "seq_before": before.seq}
    if follower.execute(statement(_ROOM, "move_position"), values).rowcount != 1:
        _require_unreleased(follower, before.source, before.follower)
        raise _overtaken(before, find(follower, before.source, before.follower))


def change_tables(follower: Connection, here: FollowerPosition) -> FollowerPosition:
    """Let other tables follow the log from there on, which the caller says in this transaction; returns the position.

    Whoever applies the log has to read its tables again before it writes anything more. The row lock makes it wait
    until this commits. Raises ApplierOvertakenError, also as FollowedTablesChangedError.
    """
    if follower.execute(_CHANGE_TABLES, vars(here)).rowcount != 1:
        raise _overtaken(here, find(follower, here.source, here.follower))
    return replace(here, generation=here.generation + 1)


def find_and_lock(follower: Connection, source: uuid.UUID, name: str) -> FollowerPosition | None:
    """As `find`, and nobody moves it until the end of the transaction; who is moving it is waited for."""
    values = {"source": source, "follower": name}
    return queries.one(follower, FollowerPosition, statement(_ROOM, "find_position") + "for update", values)


def require_unmoved(follower: Connection, here: FollowerPosition) -> None:
    """Raises ApplierOvertakenError where the follower is not at `here` any more, also as FollowedTablesChangedError."""
    if (found := find(follower, here.source, here.follower)) != here:
        raise _overtaken(here, found)


def _overtaken(before: FollowerPosition, found: FollowerPosition | None) -> ApplierOvertakenError:
    if found is not None and (found.source_epoch, found.seq) == (before.source_epoch, before.seq):
        return FollowedTablesChangedError(
            f"other tables of follower {before.follower} follow the log now; this has written nothing"
        )
    where = f"it is at seq {found.seq} now" if found else "it is not there any more"
    return ApplierOvertakenError(
        f"another applier has moved the position of follower {before.follower}, which was at seq {before.seq}: {where};"
        " this one has written nothing"
    )


def advance(
    position: FollowerPosition, source_epoch: int, seq: int, commit_lsn: int | None, committed_at: datetime
) -> FollowerPosition:
    """The position after a transaction."""
    return replace(position, source_epoch=source_epoch, seq=seq, commit_lsn=commit_lsn, committed_at=committed_at)
