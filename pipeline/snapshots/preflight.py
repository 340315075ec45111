"""Check before the start how much of joining tables there is to read, and which of them cannot be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import psycopg

from pipeline.capture.replication import prepare
from pipeline.capture.source import publication_ledger, publishable_tables
from pipeline.capture.source.publishable_tables import PublishableTable
from pipeline.capture.source.sources import ReplicationSource
from pipeline.config import patterns
from pipeline.config.settings import Config
from pipeline.findings import CheckFinding, CheckFindings, SqlRemedy, first_names
from pipeline.postgres import databases, migrations, reading_session
from pipeline.postgres.connections import Connection
from pipeline.snapshots import known_tables, reading_rights, to_read
from pipeline.snapshots.to_read import RelationToRead
from pipeline.terminal import drawing

NAME, RIGHTS = "snapshot", "snapshot rights"
ROWS_PER_SECOND = 50_000
"""A rough rate: rows of some hundred bytes, two workers, both databases at hand."""
EVENT_BYTES, GROWTH = 300, 1.5
"""Bytes of an event without its values, and how much larger the values are as JSON; rough estimates, too."""
_PATIENCE = "set local lock_timeout = '1s'"


def run(
    config: Config, source: Connection, pipeline: Connection | None, stored: ReplicationSource | None
) -> CheckFindings:
    """Report which of the joining tables can be read, and how long that takes.

    Parameters as in `source_checks.run`.
    """
    unknown = _unknown(config, pipeline)
    joining = [] if config.snapshot == "never" or unknown else _joining(config, source, pipeline, stored)
    if config.snapshot == "never":
        yield CheckFinding("ok", NAME, "PIPELINE_SNAPSHOT is never: rows that tables have when they join are not read")
    elif unknown:
        yield CheckFinding("ok", NAME, f"the tables to read are not known until {unknown}")
    elif not joining:
        yield CheckFinding("ok", NAME, "no existing rows to read")
    failed = reading_rights.failed(pipeline, stored)
    if not joining and not failed:
        return
    named = reading_rights.publications(config, stored)
    try:
        with reading_session.catalog_session(config, source, name="pipeline check") as reading, reading.transaction():
            reading.execute(_PATIENCE)
            found = to_read.relations(reading, [table.oid for table in joining], named, sized=True)
            tried = to_read.relations(reading, failed, named, sized=False)
    except psycopg.errors.LockNotAvailable:
        yield CheckFinding(
            "warning", NAME, "a session locks a table, so the number of rows to read is not known", "check again"
        )
        return
    if joining:
        yield CheckFinding("ok", NAME, _describe(joining, found))
    yield from _refused([*found, *tried], failed)


def _joining(
    config: Config, source: Connection, pipeline: Connection | None, stored: ReplicationSource | None
) -> list[PublishableTable]:
    """Return the tables, without partitions, that will join: those that are or will be published."""
    publisher = prepare.publisher(config, source, pipeline)
    found = publisher.tables()
    published = publication_ledger.read_publications(source, [config.publication])
    ours = config.publication not in published or (
        stored is not None and stored.publications.get(config.publication) == published[config.publication].oid
    )
    owned = [each for each in found if each.owned]
    by_administrator = [each for each in found if each.keyed]  # if this user owns no table
    there = owned or by_administrator if ours else publishable_tables.find_covered(found, published.values())
    roots = {table.line[-1] for table in there} - _known(pipeline, stored)
    return [
        table
        for table in found
        if table.oid in roots and patterns.matches(config.snapshot_tables, f"{table.schema}.{table.name}")
    ]


def _unknown(config: Config, pipeline: Connection | None) -> str | None:
    """Return what must happen before it is known which tables have joined already; None if that is known."""
    if pipeline is None:
        return "the pipeline database answers" if databases.is_elsewhere(config) else None
    current = migrations.current_revision(pipeline)
    return "the pipeline database is migrated" if current not in (None, migrations.head()) else None


def _known(pipeline: Connection | None, stored: ReplicationSource | None) -> set[int]:
    """Return the tables that have joined already, read or unread."""
    if pipeline is None or stored is None or migrations.current_revision(pipeline) != migrations.head():
        return set()
    return {oid for oid, each in known_tables.read(pipeline, stored).items() if each.captured}


def _describe(joining: Sequence[PublishableTable], found: Sequence[RelationToRead]) -> str:
    unread = {each.table_oid for each in found if each.lacking}
    if len(unread) == len(joining):
        return f"none of {drawing.count(len(joining), 'table')} can be read: see {RIGHTS}"
    found = [each for each in found if each.table_oid not in unread]
    rows, size = sum(each.rows for each in found), sum(each.bytes for each in found)
    tables = drawing.count(len(joining) - len(unread), "table")
    if unread:
        tables += f" of {len(joining)}"
    if not rows:
        return f"{tables} will be read, without rows so far"
    disk = drawing.size(round(rows * EVENT_BYTES + size * GROWTH))
    said = (
        f"{tables} will be read: about {drawing.count(drawing.estimate(rows), 'row')},"
        f" {drawing.size(size)}; at a rough {ROWS_PER_SECOND:,} rows/s that takes"
        f" {drawing.ago(max(rows / ROWS_PER_SECOND, 1))}, and about {disk} of disk in the pipeline database"
    )
    one = {each.table_oid for each in found if each.blocks and not each.identified}
    if keyless := [table for table in joining if table.oid in one]:
        said += (
            f"; {first_names(keyless)}: without a key, so read in one transaction that holds a snapshot until its end"
        )
    unplaced = {each.table_oid for each in found if each.blocks and not each.by_place} - one
    if whole := [table for table in joining if table.oid in unplaced]:
        said += (
            f"; {first_names(whole)}: read in one transaction, too, unless the reading role may select the column ctid"
        )
    return said


def _refused(found: Sequence[RelationToRead], failed: Mapping[int, str]) -> CheckFindings:
    """Yield a warning for each table that cannot be read. `failed`: see `reading_rights.failed`."""
    for each in found:
        if each.lacking:
            remedy = reading_rights.remedy(each, failed)
            yield CheckFinding("warning", RIGHTS, each.lacking, remedy, cure=SqlRemedy("source", each.grants))
