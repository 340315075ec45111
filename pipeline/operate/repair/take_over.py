"""Takes over a slot for a pipeline database without positions, on request: another one reads it, or this one did
before it was emptied.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

from pipeline.capture.replication import prepare
from pipeline.capture.source import not_begun, publication_form, slot_mark, slots, sources
from pipeline.capture.source.publication_form import KEYLESS_SUFFIX
from pipeline.capture.source.slots import Slot
from pipeline.capture.source.sources import Source
from pipeline.config.settings import Config
from pipeline.errors import SlotTaken, SourceUnfit
from pipeline.operate.repair import jumping
from pipeline.operate.repair.adopted import Adopted
from pipeline.operate.repair.gap import Gap
from pipeline.postgres import migrations
from pipeline.postgres.connections import Connection


def take_over(
    config: Config, source: Connection, pipeline: Connection, stored: Source | None, agree: Callable[[Gap], None]
) -> Adopted:
    """`agree` is called before anything is changed, as `adopt` does. Raises SourceUnfit when the slot is not another's.

    The pipeline database may be one without our schema: it is migrated.
    """
    prepare.require_fit(source)
    slot = slots.find_ours(source, config.slot, stored.id if stored else None)
    reason = _taken(config, source, pipeline)
    if slot is None or reason is None:
        raise SourceUnfit(not_begun.NO_SERVER)
    slots.require_whole(config.slot, slot, None, 0)
    starts_at = slot.confirmed_lsn or 0
    agree(Gap(source.info.dbname, [reason], starts_at, None, None, begins=True))
    migrations.upgrade(config.database, config.events_table)
    jumping.jump(config, source, pipeline, reason)
    with sources.publishing(pipeline, source):
        _own_publications(config, source, pipeline, stored, slot)
        marked = slot_mark.write(source, pipeline, config.publication, config.slot)
    return Adopted(0, [reason], starts_at, starts_at, kept_slot=True, known=0, begins=True, marked=marked)


def _taken(config: Config, source: Connection, pipeline: Connection) -> str | None:
    try:
        slot_mark.require_own(source, pipeline, config.slot)
    except SlotTaken as error:
        return str(error).partition("; ")[0]
    return None


def _own_publications(
    config: Config, source: Connection, pipeline: Connection, stored: Source | None, slot: Slot
) -> None:
    """Publications that the other one made, both of them, are kept up to date by this server from now on."""
    names = [config.publication, config.publication + KEYLESS_SUFFIX]
    rows = source.execute(
        "select pubname::text, oid::bigint from pg_publication"
        " where pubname = any(%s) and pg_has_role(pubowner, 'usage')",
        (names,),
    ).fetchall()
    if stored is None:
        stored = Source(config.source_id or uuid.uuid4(), 0, "", slot.database, config.slot)
        sources.add(pipeline, stored)
    sources.read_no_tables(pipeline, stored.id)
    made: dict[str, int] = dict(rows) if len(rows) == len(names) else {}
    publication_form.restore(source, made)
    for name, oid in made.items():
        sources.add_publication(pipeline, stored.id, name, oid)
