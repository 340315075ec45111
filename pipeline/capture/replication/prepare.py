"""Prepares the start of the stream: the source, its publications and its slot. Refuses before any change."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from pipeline.capture.replication import still_published
from pipeline.capture.replication.stream import PROTOCOL_OPTIONS, ReplicationStream
from pipeline.capture.source import (
    captured_tables,
    own_tables,
    publication_ledger,
    seen_tables,
    slot_creation,
    slot_failover,
    slot_mark,
    slots,
    sources,
    timeline,
)
from pipeline.capture.source.publications import PublicationSet, Publisher
from pipeline.capture.source.slots import Slot
from pipeline.capture.source.sources import ReplicationSource, SourceEpoch
from pipeline.capture.source.timeline import ADOPT
from pipeline.capture.source.walsender import SystemIdentity, application_name
from pipeline.config.settings import Config
from pipeline.errors import DatabaseUnavailableError, SourceChangedError, SourceUnfitError
from pipeline.log import jumps
from pipeline.log.staging import progress
from pipeline.log.table import EventsTable
from pipeline.postgres import connections, waits
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.printable import identifier
from pipeline.wal import lsn

logger = logging.getLogger(__name__)

MIN_VERSION = 150000
"""As server_version_num; earlier versions of Postgres are out of support."""


@dataclass(frozen=True)
class PreparedSource:
    """The stored source and the publications in use, which the stream needs to start."""

    source: ReplicationSource
    publications: PublicationSet


def require_fit(source: Connection, *, known: bool = False) -> None:
    """Raises SourceUnfitError if this server cannot be a source: by wal_level, version, rights, or as a standby.

    `known`: positions are stored. Then a standby may be promoted soon, and raises DatabaseUnavailableError.
    """
    version, wal_level, may_replicate, user, standby = read_settings(source)
    if version < MIN_VERSION:
        raise SourceUnfitError(f"the source runs Postgres {version // 10000}, and 15 or newer is needed; upgrade it")
    if standby:
        refusal = DatabaseUnavailableError if known else SourceUnfitError
        raise refusal("the source is a standby; point PIPELINE_SOURCE_DSN at its primary")
    if wal_level != "logical":
        raise SourceUnfitError(
            f"the source has wal_level = {wal_level}; set wal_level = logical in its configuration and restart it"
        )
    if not may_replicate:
        raise SourceUnfitError(
            f'user "{user}" may not replicate from the source; run: alter role {identifier(user)} with replication'
        )


def read_settings(source: Connection) -> tuple[int, str, bool, str, bool]:
    """Read version, wal_level, whether this user may replicate, its name, and whether the server is a standby."""
    row = source.execute(statement("capture.replication", "source_settings")).fetchone()
    assert row is not None  # noqa: S101  the current user's role exists
    version, wal_level, may_replicate, user, standby = row
    return version, wal_level, may_replicate, user, standby


def publisher(config: Config, source: Connection, pipeline: Connection | None) -> Publisher:
    """Return the publisher for these settings; it excludes the server's own tables if they are in the source's
    database.
    """
    own = own_tables.read(source, pipeline, config.events_tables)
    return Publisher(source, config.publication, config.tables, own)


def refuse_unfit(
    config: Config, source: Connection, pipeline: Connection, identity: SystemIdentity | None = None
) -> None:
    """Raise the error if source, publication or slot is unfit. Changes nothing.

    The pipeline database may lack the server's schema. `identity`: see `continuity_checks`.
    """
    stored = sources.find_in_any(pipeline, config.source_id)
    require_fit(source, known=stored is not None and progress.stored_position(pipeline, stored.id) is not None)
    if config.source_id and not stored:
        _require_no_other_id(config, source, pipeline)
    slots.find_ours(source, config.slot, stored.id if stored else None, slot_mark.own_id(pipeline))
    for check in continuity_checks(config, source, pipeline, stored, identity).values() if stored else ():
        check()
    slot_mark.require_own(source, pipeline, config.slot)
    require_slot(config, source, pipeline, stored.id if stored else None)
    publisher(config, source, None).require_possible()


def _require_no_other_id(config: Config, source: Connection, pipeline: Connection) -> None:
    """Raise SourceChangedError if the slot's positions are stored under another id than PIPELINE_SOURCE_ID."""
    for other in sources.find_all_in_any(pipeline):
        if (other.slot, other.system_identifier) == (config.slot, timeline.read_identity(source).system_identifier):
            raise SourceChangedError(
                f'PIPELINE_SOURCE_ID is {config.source_id}, but the positions of slot "{config.slot}" are stored for '
                f"{other.id}: set PIPELINE_SOURCE_ID={other.id}; or, for a second source, another PIPELINE_SLOT"
            )


def continuity_checks(
    config: Config,
    source: Connection,
    pipeline: Connection,
    stored: ReplicationSource,
    identity: SystemIdentity | None = None,
) -> dict[str, Callable[[], None]]:
    """Return the checks that our positions are still valid, in their order; each may raise a SourceChangedError.

    They change nothing. Without an `identity` from IDENTIFY_SYSTEM, it is read over the ordinary connection. Another
    server may be running.
    """
    reach = timeline.read_reach(pipeline, stored.id)
    if reach is None:
        return {}
    now = timeline.read_identity(source)  # read after the position, because a worker may be moving both
    if identity is not None:
        now = replace(identity, flushed=now.flushed)
    checks = {"history": lambda: timeline.require_continued(stored, now, reach, partial(_fetch_history, config))}
    if now.system_identifier != stored.system_identifier:  # nothing else can be compared, and is no second finding
        return checks
    return checks | {
        "settings": lambda: _require_same_settings(config, stored),
        "mark": lambda: slot_mark.require_own(source, pipeline, config.slot),
        "slot": lambda: require_slot(config, source, pipeline, stored.id),
        "publication": lambda: still_published.require_published(source, pipeline, stored),
    }


def require_slot(config: Config, source: Connection, pipeline: Connection, source_id: uuid.UUID | None) -> None:
    """Raises SlotLostError if the slot no longer holds everything that is not stored yet."""
    slot = slots.find(source, config.slot)  # before the position, which a worker stores before it confirms it
    position = progress.stored_position(pipeline, source_id) if source_id else None
    slots.require_whole(config.slot, slot, position, timeline.read_identity(source).flushed)


def _fetch_history(config: Config, of_timeline: int) -> str:
    stream = ReplicationStream(config.source, application_name(uuid.uuid4()))
    try:
        return stream.timeline_history(of_timeline)
    finally:
        stream.close()


def _require_same_settings(config: Config, stored: ReplicationSource) -> None:
    if stored.slot != config.slot:
        raise SourceChangedError(
            f'positions are stored for slot "{stored.slot}", not "{config.slot}": set PIPELINE_SLOT={stored.slot}; '
            f'or keep "{config.slot}": {ADOPT}'
        )
    used = list(publication_ledger.known_publications(stored))
    if used and config.publication not in used:
        raise SourceChangedError(
            f'positions are stored for publication "{used[0]}", not "{config.publication}": '
            f"set PIPELINE_PUBLICATION={used[0]}; or {ADOPT} with the other"
        )
    for name, value in PROTOCOL_OPTIONS.items():
        if stored.options.get(name, value) != value:
            raise SourceChangedError(
                f"positions are stored for a stream with {name} {stored.options[name]}, and this version of the server "
                f"asks for {value}: run the version that stored them; or {ADOPT}"
            )


def prepare(
    config: Config, source: Connection, pipeline: Connection, identity: SystemIdentity, source_id: uuid.UUID
) -> PreparedSource:
    """Find or create the source (a new one gets `source_id`), its publications and its slot, in this order.

    Raises a ReplicationError that says why the stream cannot start.
    """
    refuse_unfit(config, source, pipeline, identity)
    stored = sources.find(pipeline, config.source_id)
    if stored is None:
        stored = describe_source(ReplicationSource(source_id, 0, "", "", ""), config, source, identity)
        sources.add(pipeline, stored)
    elif progress.stored_position(pipeline, stored.id) is None:  # nothing depends on the stored source yet
        stored = describe_source(stored, config, source, identity)
        sources.change(pipeline, stored)
    elif stored.timeline != identity.timeline:
        timeline.store_timeline(pipeline, stored, identity, partial(_fetch_history, config))
    stored = replace(stored, timeline=identity.timeline)
    publications = publish(config, source, pipeline, stored)
    _ensure_slot(config, source, pipeline, stored)
    with sources.publishing(pipeline, source):
        slot_mark.write_mark(source, pipeline, config.publication, config.slot)
    return PreparedSource(stored, publications)


def create_slot(config: Config, source: Connection, pipeline: Connection) -> int:
    """Do what the first start does before it streams: create publications and slot, with a migrated pipeline
    database.

    Returns the LSN from which the slot streams. Raises SlotExistsError, and what `prepare` raises.
    """
    slots.require_absent(source, config.slot)
    stream = ReplicationStream(config.source, application_name(source_id := config.source_id or uuid.uuid4()))
    try:
        with waits.report_waits(partial(slot_creation.subject, config.slot)):
            prepare(config, source, pipeline, stream.identify(), source_id)
    finally:
        stream.close()
    created = slots.find(source, config.slot)
    return (created.confirmed_lsn or 0) if created else 0


def describe_source(
    known: ReplicationSource, config: Config, source: Connection, identity: SystemIdentity
) -> ReplicationSource:
    """Return the source as it is now, with the current settings, under a known id and epoch."""
    return replace(
        known,
        system_identifier=identity.system_identifier,
        database_name=identity.database,
        timeline=identity.timeline,
        slot=config.slot,
        options={**PROTOCOL_OPTIONS, "server_version": source.info.server_version},
    )


def publish(config: Config, source: Connection, pipeline: Connection, stored: ReplicationSource) -> PublicationSet:
    """Create publications or bring them up to date, and store what they publish."""
    with sources.publishing(pipeline, source):
        fresh = sources.find(pipeline, stored.id) or stored
        ledger = publication_ledger.open_ledger(source, pipeline, stored.id, fresh.published)
        tables = publisher(config, source, pipeline)
        publications = tables.ensure(fresh.publications, ledger)
        # A publication that another user made is used as it is, whatever the patterns are.
        _store_unmatched(pipeline, fresh, tables.unmatched if publications.made else None)
        for name, oid in publications.made.items():
            sources.add_publication(pipeline, stored.id, name, oid)
    return publications


def publish_new_tables(config: Config, source: Connection, pipeline: Connection) -> None:
    """Bring the server's own publications up to date with the existing tables; others are left alone.

    Raises PublicationChangedError if another user has removed something from them.
    """
    with sources.publishing(pipeline, source):
        stored = sources.find(pipeline, config.source_id)
        if stored is not None and config.publication in stored.publications:
            ledger = publication_ledger.open_ledger(source, pipeline, stored.id, stored.published)
            tables = publisher(config, source, pipeline)
            tables.refresh(ledger)
            _store_unmatched(pipeline, stored, tables.unmatched)


def _store_unmatched(pipeline: Connection, stored: ReplicationSource, why: str | None) -> None:
    if why == stored.unmatched:
        return
    sources.store_unmatched(pipeline, stored.id, why)
    if why:
        logger.error("%s", why, extra={"action": "publication.unmatched"})
    else:
        logger.info("PIPELINE_TABLES matches tables again", extra={"action": "publication.matched"})


def _ensure_slot(config: Config, source: Connection, pipeline: Connection, stored: ReplicationSource) -> None:
    slot = slots.find(source, config.slot)
    if progress.stored_position(pipeline, stored.id) is None:
        _jump_behind_others(config, source, pipeline, slot)
    if slot is None:
        seen_tables.begin(source, pipeline, stored.id, stored.epoch)
        start = slot_creation.create(config.source, pipeline, config.slot)
        known = sources.find(pipeline, stored.id) or stored
        named = publication_ledger.named_tables(publication_ledger.from_json(known.published))
        captured_tables.record_first_start(source, pipeline, stored.id, named)
    else:
        slots.end_walsender(source, slot)
        require_slot(config, source, pipeline, stored.id)
        if slot.failover is False:
            slot_failover.enable(config.source, slot.name)
        slot = slots.find(source, config.slot)
        start = (slot.confirmed_lsn or 0) if slot else 0
        if progress.stored_position(pipeline, stored.id) is None and not slot_mark.find_marks(source, config.slot):
            logger.warning(
                'slot "%s" was made by another user and is taken over: no change before %s is sent',
                config.slot,
                lsn.show(start),
                extra={"action": "slot.taken_over"},
            )
    progress.begin(pipeline, stored.id, stored.epoch, start)
    if stored.epoch == 0:
        first = SourceEpoch(stored.id, 0, stored.system_identifier, stored.timeline, start, None, 0, "first start")
        sources.begin_epoch(pipeline, first)


def _jump_behind_others(config: Config, source: Connection, pipeline: Connection, slot: Slot | None) -> None:
    """Jump to higher seqs at the first start if the slot was read for another log, whose seqs readers may know."""
    marks, own = slot_mark.find_marks(source, config.slot), slot_mark.own_id(pipeline)
    if any(mark != own for mark in marks) or (slot is not None and not marks):
        tables = [EventsTable.parse(name) for name in config.events_tables]
        reason = f'slot "{config.slot}" was read for another log before'
        jumps.jump(pipeline, tables, partial(jumps.clock, source), reason)


def connect(config: Config, *, name: str) -> tuple[Connection, Connection]:
    """Return ordinary connections to the source and the pipeline database, in this order."""
    source = connections.connect(config.source, "source", name=name)
    try:
        return source, connections.connect(config.database, "pipeline database", name=name)
    except BaseException:
        source.close()
        raise
