"""Refuse `sources adopt --upgraded` unless the source can be the known one, made by pg_upgrade, with its slot kept.

Whether pg_upgrade kept the slot, or another user made it again after writes, cannot be seen: that is the user's word.
"""

from __future__ import annotations

from pipeline.capture.source import publication_ledger
from pipeline.capture.source.slots import Slot
from pipeline.capture.source.sources import ReplicationSource
from pipeline.capture.source.walsender import SystemIdentity
from pipeline.errors import PipelineError
from pipeline.findings import first_names
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.snapshots import backfills, known_tables

_WITHOUT = "without --upgraded, a new epoch begins with a gap"


def require_upgraded(
    source: Connection,
    pipeline: Connection,
    stored: ReplicationSource,
    staged: int,
    slot: Slot | None,
    identity: SystemIdentity,
) -> None:
    """Raises PipelineError with the reason why this cannot be the source after pg_upgrade. Changes nothing.

    `staged`: how far the source is staged.
    """
    if identity.system_identifier == stored.system_identifier:
        raise PipelineError("the source is still the known cluster, so pg_upgrade has not made it; omit --upgraded")
    if identity.database != stored.database_name:
        known = stored.database_name
        raise PipelineError(f"the source is database {identity.database}, not {known}; correct PIPELINE_SOURCE_DSN")
    if slot is None or slot.invalidated or (slot.confirmed_lsn or 0) < staged:
        raise PipelineError(f'pg_upgrade has not kept slot "{stored.slot}"; {_WITHOUT}')
    publications = publication_ledger.known_publications(stored)
    there = publication_ledger.read_publications(source, list(publications))
    if lost := [name for name in publications if name not in there]:
        raise PipelineError(f"the source lacks publication {first_names(lost)}; {_WITHOUT}")
    if moved := _moved_tables(source, pipeline, stored):
        raise PipelineError(f"{first_names(moved)} has another OID than before, which pg_upgrade keeps; {_WITHOUT}")
    if started := backfills.list_open(pipeline, stored.id):
        names = first_names(f"{each.table_schema}.{each.table_name}" for each in started)
        raise PipelineError(f"rows of {names} are still being read; end that with `pipeline backfill cancel`")


def _moved_tables(source: Connection, pipeline: Connection, stored: ReplicationSource) -> list[str]:
    """Return the captured tables whose OID has no table of that name any longer."""
    known = {
        oid: (each.table_schema, each.table_name)
        for oid, each in known_tables.read(pipeline, stored).items()
        if each.captured
    }
    published = publication_ledger.known_publications(stored).values()
    named = {int(oid): (str(schema), str(name)) for each in published for oid, (_, schema, name) in each.tables.items()}
    tables = {**named, **known}
    values = {
        "oids": list(tables),
        "schemas": [schema for schema, _ in tables.values()],
        "names": [name for _, name in tables.values()],
    }
    return [name for (name,) in source.execute(statement("operate.repair", "moved_tables"), values).fetchall()]
