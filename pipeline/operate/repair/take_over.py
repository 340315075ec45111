"""Take over a slot for a pipeline database without positions, and let the log jump."""

from __future__ import annotations

import uuid
from functools import partial

from pipeline.capture.replication import prepare
from pipeline.capture.source import missing_source, publication_form, slot_mark, slots, sources
from pipeline.capture.source.publication_form import KEYLESS_SUFFIX
from pipeline.capture.source.slots import Slot
from pipeline.capture.source.sources import ReplicationSource
from pipeline.config.settings import Config
from pipeline.errors import SlotTakenError, SourceUnfitError
from pipeline.log import jumps
from pipeline.log.table import EventsTable
from pipeline.operate.preflight import legacy_log
from pipeline.operate.repair.adoption_report import AdoptionReport
from pipeline.operate.repair.gap import GapConsent, HistoryGap
from pipeline.postgres import migrations
from pipeline.postgres.connections import Connection


def take_over(
    config: Config,
    source: Connection,
    pipeline: Connection,
    stored: ReplicationSource | None,
    agree: GapConsent,
) -> AdoptionReport:
    """Take over a slot for a pipeline database without positions: another database reads it, or this one did before.

    `agree` is called before any change, and may raise to prevent it. Raises SourceUnfitError if the slot carries no
    other database's mark.

    A pipeline database without our schema is migrated.
    """
    prepare.require_fit(source)
    slot = slots.find_ours(source, config.slot, stored.id if stored else None)
    reason = _taken(config, source, pipeline)
    if slot is None or reason is None:
        raise SourceUnfitError(missing_source.NO_SERVER)
    slots.require_whole(config.slot, slot, None, 0)
    starts_at = slot.confirmed_lsn or 0
    agree(HistoryGap(source.info.dbname, [reason], starts_at, None, None, begins=True))
    migrations.upgrade(config.database, config.events_table)
    jump(config, source, pipeline, reason)
    with sources.publishing(pipeline, source):
        _own_publications(config, source, pipeline, stored, slot)
        marked = slot_mark.write_mark(source, pipeline, config.publication, config.slot)
    return AdoptionReport(0, [reason], starts_at, starts_at, kept_slot=True, known=0, begins=True, marked=marked)


def _taken(config: Config, source: Connection, pipeline: Connection) -> str | None:
    try:
        slot_mark.require_own(source, pipeline, config.slot)
    except SlotTakenError as error:
        return str(error).partition("; ")[0]
    return None


def _own_publications(
    config: Config, source: Connection, pipeline: Connection, stored: ReplicationSource | None, slot: Slot
) -> None:
    """Record the publications as made by this server, which keeps them up to date from now on, if both exist."""
    names = [config.publication, config.publication + KEYLESS_SUFFIX]
    rows = source.execute(
        "select pubname::text, oid::bigint from pg_publication"
        " where pubname = any(%s) and pg_has_role(pubowner, 'usage')",
        (names,),
    ).fetchall()
    if stored is None:
        stored = ReplicationSource(config.source_id or uuid.uuid4(), 0, "", slot.database, config.slot)
        sources.add(pipeline, stored)
    sources.read_no_tables(pipeline, stored.id)
    made: dict[str, int] = dict(rows) if len(rows) == len(names) else {}
    publication_form.restore(source, made)
    for name, oid in made.items():
        sources.add_publication(pipeline, stored.id, name, oid)


def jump(config: Config, source: Connection, pipeline: Connection, reason: str) -> None:
    """Let every events table jump, also a table that a server has not created yet. No server may be running."""
    legacy_log.ensure(config, pipeline)
    named = [EventsTable.parse(name) for name in config.events_tables]
    jumps.jump(pipeline, named, partial(jumps.clock, source), reason)
