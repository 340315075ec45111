"""Before the stream starts: which source this is, its publications, its slot. Refuses before it changes anything."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from pipeline import db
from pipeline.catalog import sources
from pipeline.catalog.sources import Source
from pipeline.config import Config
from pipeline.db import Connection, sql
from pipeline.errors import SlotMissing, SourceUnfit
from pipeline.events.log import EventsTable
from pipeline.replication import slot as slots
from pipeline.replication.publications import Publications, Publisher
from pipeline.replication.stream import PROTOCOL_OPTIONS, SystemIdentity
from pipeline.staging import writer
from pipeline.wal import lsn

MIN_VERSION = 140000


@dataclass(frozen=True)
class Prepared:
    """All that the stream needs to start."""

    source: Source
    publications: Publications


def require_fit(source: Connection) -> None:
    """Raises SourceUnfit when this server cannot be a source: wal_level, version, rights, or a standby."""
    version, wal_level, may_replicate, user, standby = settings(source)
    if version < MIN_VERSION:
        raise SourceUnfit(f"the source runs Postgres {version // 10000}, and 14 or newer is needed; upgrade it")
    if standby:
        raise SourceUnfit("the source is a standby; point PIPELINE_SOURCE_DSN at its primary")
    if wal_level != "logical":
        raise SourceUnfit(
            f"the source has wal_level = {wal_level}; set wal_level = logical in its configuration and restart it"
        )
    if not may_replicate:
        raise SourceUnfit(f'user "{user}" may not replicate from the source; run: alter role "{user}" with replication')


def settings(source: Connection) -> tuple[int, str, bool, str, bool]:
    """Version, wal_level, whether this user may replicate, its name, and whether the server is a standby."""
    row = source.execute(sql("replication", "source_settings")).fetchone()
    assert row is not None  # noqa: S101  the role we are
    version, wal_level, may_replicate, user, standby = row
    return version, wal_level, may_replicate, user, standby


def shares_database(source: Connection, pipeline: Connection) -> bool:
    """Whether both connections lead to one database of one cluster."""
    query = sql("replication", "database_identity")
    return source.execute(query).fetchone() == pipeline.execute(query).fetchone()


def publisher(config: Config, source: Connection, pipeline: Connection) -> Publisher:
    """The publisher of these settings; knows our own tables when they could be mistaken for the source's."""
    own = [EventsTable.parse(config.events_table)] if shares_database(source, pipeline) else []
    return Publisher(source, config.publication, config.tables, own)


def refuse_unfit(config: Config, source: Connection, pipeline: Connection) -> None:
    """Everything that can be wrong with source, publication and slot, found without changing anything.

    The pipeline database may be one that was never migrated.
    """
    require_fit(source)
    row = pipeline.execute("select to_regclass('pipeline.replication_progress') is not null").fetchone()
    stored = sources.find(pipeline, config.source_id) if row and row[0] else None
    position = writer.stored_position(pipeline, stored.id) if stored else None
    slot = slots.find(source, config.slot)
    if slot is not None:
        slots.require_usable(slot, source.info.dbname, position)
        slots.require_free(slot, stored.id if stored else None)
    elif position is not None:
        raise slot_lost(config.slot, position)
    Publisher(source, config.publication, config.tables).require_possible()


def prepare(
    config: Config, source: Connection, pipeline: Connection, identity: SystemIdentity, source_id: uuid.UUID
) -> Prepared:
    """Find or make source (a new one gets `source_id`), publications and slot, in this order.

    Raises the ReplicationError that says why not.
    """
    refuse_unfit(config, source, pipeline)
    stored = sources.find(pipeline, config.source_id)
    if stored is not None:
        require_same(stored, identity, config.slot)
    else:
        stored = Source(
            id=source_id,
            epoch=0,
            system_identifier=identity.system_identifier,
            database_name=identity.database,
            slot=config.slot,
            options={**PROTOCOL_OPTIONS, "server_version": source.info.server_version},
        )
        sources.add(pipeline, stored)
    publications = publisher(config, source, pipeline).ensure(stored.publications)
    for name, oid in publications.made.items():
        sources.add_publication(pipeline, stored.id, name, oid)
    _ensure_slot(config, source, pipeline, stored)
    return Prepared(stored, publications)


def _ensure_slot(config: Config, source: Connection, pipeline: Connection, stored: Source) -> None:
    position = writer.stored_position(pipeline, stored.id)
    slot = slots.find(source, config.slot)
    if slot is None:
        if position is not None:
            raise slot_lost(config.slot, position)
        start = slots.create(source, config.slot)
    else:
        slots.require_usable(slot, source.info.dbname, position)
        slots.evict(source, slot)
        start = slot.confirmed_lsn or 0
    writer.begin(pipeline, stored.id, stored.epoch, start)


def require_same(stored: Source, identity: SystemIdentity, slot: str) -> None:
    """Raises SourceUnfit or SlotMissing when positions are stored for another source or slot than this."""
    if (stored.system_identifier, stored.database_name) != (identity.system_identifier, identity.database):
        raise SourceUnfit(
            f"the source is database {identity.database} of cluster {identity.system_identifier}, but positions are "
            f"stored for {stored.database_name} of {stored.system_identifier}; LSNs of the two do not compare: "
            "point PIPELINE_SOURCE_DSN back, or use a new pipeline database"
        )
    if stored.slot != slot:
        raise SlotMissing(
            f'positions are stored for slot "{stored.slot}", not "{slot}": set PIPELINE_SLOT={stored.slot}, '
            "or use a new pipeline database"
        )


def slot_lost(name: str, position: int) -> SlotMissing:
    """The error for a slot that is gone although a position is stored."""
    return SlotMissing(
        f'slot "{name}" does not exist, but we have stored up to {lsn.show(position)}: it was dropped, and the changes '
        "since are not in the log; start over with a new pipeline database to go on"
    )


def connect(config: Config, *, name: str) -> tuple[Connection, Connection]:
    """Ordinary connections to source and pipeline database, in this order."""
    source = db.connect(config.source, "source", name=name)
    try:
        return source, db.connect(config.database, "pipeline database", name=name)
    except BaseException:
        source.close()
        raise
