"""Whether a session may be made: what the source can spare, and whose commits would wait for it."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.capture.catchup import limits
from pipeline.capture.source import slots, synchronous_standbys
from pipeline.errors import SessionRefused
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.wires.pgdeltastream.sessions import backends
from pipeline.wires.pgdeltastream.sessions.store import NAME_PREFIX, Session, walsender_name

SPARE = 1
"""So many slots and walsenders stay free: a worker that cannot reconnect would be a high price for a visitor."""


def lacking(source: Connection, live: Sequence[Session]) -> str | None:
    """Return what the source lacks for one more session, with the remedy; None if it can spare a slot and a walsender.

    `live`: the sessions that have not ended. Each counts with the slot and the walsender that it has or will take.
    """
    lacking_slots, lacking_senders = _still_to_come(source, live)
    room = limits.room(source)
    for setting, free, most, lacking in (
        ("max_replication_slots", room.free_slots, room.max_slots, lacking_slots),
        ("max_wal_senders", room.free_senders, room.max_senders, lacking_senders),
    ):
        if free - lacking < 1 + SPARE:
            awaited = f", and {lacking} of them other sessions will need" if lacking else ""
            return (
                f"the source has {max(0, free)} of its {setting} = {most} free{awaited}: a session needs one, and one "
                f"stays free for the worker; raise {setting} at the source, or end sessions that are not needed"
            )
    return None


def _still_to_come(source: Connection, live: Sequence[Session]) -> tuple[int, int]:
    """How many slots and walsenders these sessions will take that they do not have now."""
    there = {slot.name for slot in slots.all_slots(source)}
    reading = {each.name for each in backends.of(source, live) if each.walsender}
    return (
        sum(session.slot not in there for session in live),
        sum(walsender_name(session.slot) not in reading for session in live),
    )


def require_nobody_waits(source: Connection) -> None:
    """Raises SessionRefused if commits at the source would wait for a session's client."""
    names = queries.value(source, "select current_setting('synchronous_standby_names')")
    if synchronous_standbys.can_choose(names, NAME_PREFIX):
        raise SessionRefused(
            f"synchronous_standby_names = '{names}' can choose a session's walsender, and users' commits would wait "
            "for what its client acknowledges; list the standbys by name there"
        )
