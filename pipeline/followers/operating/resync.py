"""The command `pipeline followers resync`: copies tables again from the source, while other tables follow the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import psycopg

from pipeline.config import patterns
from pipeline.errors import FollowerError, TableRefusedError
from pipeline.findings import first_names
from pipeline.followers import connecting, registry
from pipeline.followers.applying import position
from pipeline.followers.copying import copies
from pipeline.followers.operating import status
from pipeline.followers.registry import ApplierReport, FollowerTable, RegisteredFollower
from pipeline.postgres.connections import Connection

ASKED = "a user has asked to copy tables again"
CONNECT_SECONDS = 3
"""Seconds in which the follower must accept a connection."""
LOCK_SECONDS = 60.0
"""The longest wait of a command for the applier's transaction, which holds the position."""


@dataclass(frozen=True)
class RequestedResync:
    """Tables that are copied again from seq `seq` on; `copying`: tables whose copy was requested already."""

    follower: str
    seq: int
    tables: list[str] = field(default_factory=list)
    copying: list[str] = field(default_factory=list)


def resync(
    pipeline: Connection, name: str, tables: Sequence[str], *, lock_seconds: float = LOCK_SECONDS
) -> RequestedResync:
    """Request new copies of these tables (`schema.table`, or patterns), and return before they are made.

    Until then the follower applies nothing to these tables, so a follower that one of them had stopped continues.
    `lock_seconds`: the longest wait for the applier's transaction. Raises UnknownFollowerError, TableRefusedError for
    what is none of its tables, FollowerError if the follower has not begun or is applying one transaction all that
    time, and DatabaseUnavailableError if its database does not answer.
    """
    status.show(pipeline, name)
    found = registry.find(pipeline, name)[0]
    chosen = _choose_tables(found, tables)
    try:
        with connecting.connect(
            name, found.dsn, program="pipeline followers", connect_timeout=CONNECT_SECONDS
        ) as follower:
            follower.execute("select set_config('lock_timeout', %s, false)", (f"{lock_seconds:g}s",))
            seq, copying = _request_copies(follower, found, [table.table_oid for table in chosen])
    except psycopg.errors.LockNotAvailable as error:
        raise FollowerError(
            f"{connecting.label(name)} has been applying one transaction for {lock_seconds:g} s: try again"
        ) from error
    except psycopg.Error as error:
        raise connecting.unavailable(name, found.dsn, error) from error
    wanted = [table for table in chosen if table.table_oid not in copying]
    registry.store_table_states(pipeline, found.id, [_copying(each) for each in wanted])
    if wanted and found.state in ("stopped", "waiting"):  # so that its applier tries again at once
        registry.store_report(pipeline, found.id, ApplierReport("waiting", ASKED))
    return RequestedResync(
        name,
        seq,
        [_name(table) for table in wanted],
        [_name(table) for table in chosen if table.table_oid in copying],
    )


def _choose_tables(registration: RegisteredFollower, tables: Sequence[str]) -> list[FollowerTable]:
    """Return the follower's tables with these names. Raises TableRefusedError."""
    chosen = list[FollowerTable]()
    for name in tables:
        if matching := [table for table in registration.table_states if patterns.matches((name,), _name(table))]:
            chosen += matching
            continue
        if name == "*" and not registration.table_states:
            continue  # its position moves if the log lost what it has
        has = (
            first_names(_name(table) for table in registration.table_states)
            if registration.table_states
            else "no tables"
        )
        raise TableRefusedError(f"{connecting.label(registration.name)} has no table {name}; it has {has}")
    return list(dict.fromkeys(chosen))


def _request_copies(
    follower: Connection, registration: RegisteredFollower, oids: Sequence[int]
) -> tuple[int, set[int]]:
    """Return the seq from which on these tables are copied again, and the tables whose copy was requested already."""
    begun = position.schema_version(follower) is not None
    with follower.transaction():
        here = position.find_and_lock(follower, registration.source_id, registration.name) if begun else None
        if here is None:
            raise FollowerError(
                f"{connecting.label(registration.name)} has not begun: once a server runs, it copies its tables; "
                f"wait for that: `pipeline followers wait {registration.name}`"
            )
        copying = {oid for oid, copied in copies.find(follower, here).items() if copied is None}
        copying |= {each.oid for each in copies.requested(follower, here)}
        if wanted := [oid for oid in oids if oid not in copying]:
            copies.request(follower, here, wanted)
        return here.seq, copying & set(oids)


def _name(table: FollowerTable) -> str:
    return f"{table.table_schema}.{table.table_name}"


def _copying(table: FollowerTable) -> FollowerTable:
    return replace(table, state="copying", reason=None, remedy=None)
