"""The replication slot at the source: find, create, check and drop it, over an ordinary connection."""

from __future__ import annotations

import logging
import re
import uuid
from dataclasses import dataclass

import psycopg

from pipeline.capture.source.timeline import ADOPT
from pipeline.capture.source.walsender import NAME_PREFIX, application_name
from pipeline.errors import (
    ConfigError,
    SlotExistsError,
    SlotInUseError,
    SlotLostError,
    SlotMissingError,
    SlotUnusableError,
    SourceUnfitError,
)
from pipeline.postgres import connections, queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.printable import identifier
from pipeline.wal import lsn

logger = logging.getLogger(__name__)

END_MILLISECONDS = 5_000
"""Milliseconds that a walsender of an earlier worker has to end."""
_CREATE_SLOT = "select lsn::text from pg_create_logical_replication_slot(%(name)s, 'pgoutput')"
"""Create a slot for pgoutput without two-phase."""
_CREATE_FAILOVER_SLOT = """\
select lsn::text from pg_create_logical_replication_slot(%(name)s, 'pgoutput', failover => true)
"""
"""Create the same slot, of which standbys may keep a copy."""
FAILOVER_SINCE = 170000
"""The first version whose slots have the option `failover`, as server_version_num."""
_REFUSES_FAILOVER = (
    psycopg.errors.FeatureNotSupported,
    psycopg.errors.InvalidParameterValue,
    psycopg.errors.UndefinedFunction,
)
"""The errors of a source that creates slots, but none with `failover`."""


@dataclass(frozen=True)
class Slot:
    """A logical slot as pg_replication_slots shows it; LSNs as integers.

    `retained_bytes`: WAL that the source keeps for it. `safe_bytes`: WAL that can still be written before the slot may
    be lost; None without `max_slot_wal_keep_size`, and for a lost slot. `holder`: application_name of the program that
    reads it.
    `inactive_since`: when it was last read, if the source knows that (Postgres 17), in ISO 8601 for any DateStyle.
    `failover`: standbys may keep a copy of it; None before Postgres 17.
    """

    name: str
    plugin: str
    database: str
    two_phase: bool
    temporary: bool
    active_pid: int | None
    holder: str | None
    restart_lsn: lsn.Shown | None
    confirmed_lsn: lsn.Shown | None
    wal_status: str | None
    retained_bytes: int | None
    safe_bytes: int | None = None
    inactive_since: str | None = None
    failover: bool | None = None

    @property
    def being_created(self) -> bool:
        """True while the session that creates the slot waits for transactions that were running before."""
        return self.active_pid is not None and self.confirmed_lsn is None and self.wal_status != "lost"

    @property
    def invalidated(self) -> bool:
        """True if the source has removed WAL that the slot still needed: the slot can no longer be read."""
        return self.wal_status == "lost" or self.restart_lsn is None or self.confirmed_lsn is None


def find(connection: Connection, name: str) -> Slot | None:
    """Return the slot with this name, of any database."""
    return next((slot for slot in all_slots(connection) if slot.name == name), None)


def find_ours(
    connection: Connection, name: str, source_id: uuid.UUID | None, pipeline_id: str | None = None
) -> Slot | None:
    """Return the slot with this name.

    None if it does not exist, or if a session of pipeline database `pipeline_id` is creating it. Raises
    SlotUnusableError and SlotInUseError as `require_ours` and `require_free` do.
    """
    slot = find(connection, name)
    if slot is not None and slot.being_created and slot.holder == creator_name(pipeline_id):
        return None
    if slot is not None:
        require_ours(slot, connection.info.dbname)
        require_free(slot, source_id)
    return slot


def all_slots(connection: Connection) -> list[Slot]:
    """Return every logical slot of the cluster."""
    return queries.rows(connection, Slot, statement("capture.source", "slots"))


def creator_name(pipeline_id: str | None) -> str | None:
    """Return the application_name of sessions that create a slot for the pipeline database with this id."""
    return pipeline_id and f"{NAME_PREFIX}slot {pipeline_id}"


def part_name(anchor: str, worker: int) -> str:
    """Return the name of the temporary copy that stages one part of a backlog."""
    return f"{anchor}_part_{worker}"


def find_parts(connection: Connection, anchor: str) -> list[Slot]:
    """Return the copies of this slot that a catch-up has made, also those that a killed server left behind."""
    return [slot for slot in all_slots(connection) if is_part(slot.name, anchor)]


def is_part(name: str, anchor: str) -> bool:
    """True if `part_name` makes this name."""
    return re.fullmatch(re.escape(anchor) + r"_part_[1-9]\d*", name) is not None


def create(connection: Connection, name: str) -> int:
    """Create the slot, with `failover` if the source can; returns the LSN from which it streams.

    Waits for transactions that are running now.

    Raises SlotExistsError; ConfigError for a name that Postgres refuses; and SourceUnfitError if privileges,
    wal_level or free slots are missing.
    """
    try:
        row = _create(connection, name)
    except psycopg.errors.DuplicateObject as error:
        raise _exists(name) from error
    except psycopg.errors.InvalidName as error:
        raise ConfigError(f"{connections.one_line(error)}; use lower case letters, digits and _") from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise _not_permitted(connection, f'create slot "{name}"', error) from error
    except psycopg.errors.ObjectNotInPrerequisiteState as error:
        raise SourceUnfitError(
            f'cannot create slot "{name}": {connections.one_line(error)}; set it at the source and restart it'
        ) from error
    except psycopg.errors.ConfigurationLimitExceeded as error:
        raise SourceUnfitError(
            f'cannot create slot "{name}": {connections.one_line(error)}; '
            "raise max_replication_slots or drop an unused slot"
        ) from error
    assert row is not None  # noqa: S101  a function call
    return lsn.parse(row[0])


def _create(connection: Connection, name: str) -> tuple[str] | None:
    if connection.info.server_version >= FAILOVER_SINCE:
        try:
            return connection.execute(_CREATE_FAILOVER_SLOT, {"name": name}).fetchone()
        except _REFUSES_FAILOVER as error:
            why = connections.one_line(error)
            logger.warning('slot "%s" is made without failover: %s', name, why, extra={"action": "slot.no_failover"})
    return connection.execute(_CREATE_SLOT, {"name": name}).fetchone()


def require_absent(connection: Connection, name: str) -> None:
    """Raises SlotExistsError if a slot has this name."""
    if find(connection, name) is not None:
        raise _exists(name)


def require_idle(connection: Connection, name: str) -> Slot:
    """Return the slot with this name, which no program reads. Raises SlotMissingError and SlotInUseError as `drop`
    does.
    """
    slot = find(connection, name)
    if slot is None:
        raise _missing(name)
    if slot.active_pid is not None:
        raise SlotInUseError(f'slot "{name}" is active for PID {slot.active_pid}; stop that program first')
    return slot


def drop(connection: Connection, name: str) -> None:
    """Drop the slot. Raises SlotMissingError, or SlotInUseError with the pid of its reader."""
    try:
        connection.execute("select pg_drop_replication_slot(%s)", (name,))
    except psycopg.errors.UndefinedObject as error:
        raise _missing(name) from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise _not_permitted(connection, f'drop slot "{name}"', error) from error
    except psycopg.errors.ObjectInUse as error:
        raise SlotInUseError(f"{connections.one_line(error)}; stop that program first") from error


def require_ours(slot: Slot, database: str) -> None:
    """Raises SlotUnusableError for a slot that was made for another use."""
    name = f'slot "{slot.name}"'
    remedy = "choose another PIPELINE_SLOT, or drop this one"
    if slot.plugin != "pgoutput":
        raise SlotUnusableError(f"{name} uses the plugin {slot.plugin}, not pgoutput; {remedy}")
    if slot.database != database:
        raise SlotUnusableError(f"{name} belongs to database {slot.database}, not {database}; {remedy}")
    if slot.two_phase:
        raise SlotUnusableError(
            f"{name} was made with two_phase, which sends transactions before they commit; {remedy}"
        )
    if slot.temporary:
        raise SlotUnusableError(f"{name} is temporary, and will be dropped with its session; {remedy}")


def require_whole(name: str, slot: Slot | None, position: int | None, written: int) -> None:
    """Raises SlotLostError if the slot does not hold all WAL from `position` on.

    `position` is our stored position, None at the first start; `written` is where the source's WAL ends now.
    """
    if slot is None or slot.being_created:
        if position is not None:
            cause = "it was dropped, or was not copied to this server"
            raise SlotLostError(
                f'slot "{name}" does not exist, but {_stored(position)}: {cause}; {describe_gap(position, written)}'
            )
        return
    if slot.invalidated:
        kept = f", but {_stored(position)}" if position is not None else ""
        cause = f"the source removed WAL it still needed{kept}"
        raise SlotLostError(f'slot "{name}" has been invalidated: {cause}; {describe_gap(position, written)}')
    confirmed = slot.confirmed_lsn or 0
    if position is not None and confirmed > position:
        raise SlotLostError(
            f'slot "{name}" was confirmed up to {lsn.show(confirmed)} by another program, or dropped and recreated, '
            f"but {_stored(position)}; {describe_gap(position, confirmed)}"
        )


def _stored(position: int) -> str:
    return f"we have stored up to {lsn.show(position)}"


def describe_gap(position: int | None, until: int) -> str:
    """Return which changes are missing, and the remedy."""
    if position is None:
        return "drop it with `pipeline slots delete --force`, and a new one is created"
    if position >= until:
        return f"the log has everything up to where the source's WAL ends; {ADOPT}"
    return (
        f"changes from {lsn.show(position)} to {lsn.show(until)} are not in the log; "
        "`pipeline sources adopt` continues with this gap"
    )


def require_free(slot: Slot, source_id: uuid.UUID | None) -> None:
    """Raises SlotInUseError if another program than a worker of this source reads the slot. `source_id` None: a new
    source.
    """
    ours = source_id is not None and slot.holder == application_name(source_id)
    if slot.active_pid is not None and not ours:
        raise SlotInUseError(
            f'slot "{slot.name}" is in use by pid {slot.active_pid}'
            + (f" ({slot.holder})" if slot.holder else "")
            + "; stop that program, or choose another PIPELINE_SLOT"
        )


def end_walsender(connection: Connection, slot: Slot) -> None:
    """End the walsender that an earlier worker left behind. Only the holder of the replication role may call this.

    Waits until the walsender has ended: until then it may still confirm what it receives. Raises SlotInUseError if it
    does not end.
    """
    if slot.active_pid is None:
        return
    if not (queries.value(connection, "select pg_terminate_backend(%s, %s)", (slot.active_pid, END_MILLISECONDS))):
        raise SlotInUseError(
            f'slot "{slot.name}" is still read by pid {slot.active_pid}, which does not end; terminate it'
        )


def _exists(name: str) -> SlotExistsError:
    return SlotExistsError(f'slot "{name}" exists already; choose another name, or delete it first')


def _missing(name: str) -> SlotMissingError:
    return SlotMissingError(f'slot "{name}" does not exist; `pipeline slots list` shows the existing ones')


def _not_permitted(connection: Connection, what: str, error: psycopg.Error) -> SourceUnfitError:
    user = connection.info.user
    return SourceUnfitError(
        f"cannot {what}: {connections.one_line(error)}; run: alter role {identifier(user)} with replication"
    )
