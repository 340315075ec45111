"""Find rights that the reading role lacks on tables whose reading failed: the server does not try these again."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.capture.source import publication_ledger, sources
from pipeline.capture.source.sources import ReplicationSource
from pipeline.config.settings import Config
from pipeline.postgres import migrations, reading_session
from pipeline.postgres.connections import Connection
from pipeline.printable import sql
from pipeline.snapshots import overview, to_read
from pipeline.snapshots.to_read import RelationToRead


def failed(pipeline: Connection | None, stored: ReplicationSource | None) -> dict[int, str]:
    """Return schema and name, by oid, of tables whose reading failed. Empty if the pipeline database is not usable."""
    if pipeline is None or stored is None or migrations.current_revision(pipeline) != migrations.head():
        return {}
    return overview.failed(pipeline, stored.id)


def publications(config: Config, stored: ReplicationSource | None) -> list[str]:
    """Return the publications whose tables are read: those in use; before the first start, the one of the settings."""
    return list(publication_ledger.known_publications(stored)) if stored else [config.publication]


def remedy(relation: RelationToRead, tables: Mapping[int, str]) -> str:
    """Return the SQL with which an administrator lets the relation be read.

    If its table is one of `tables`, the command that reads the table again follows.
    """
    grants = "; ".join(map(sql, relation.grants))
    table = tables.get(relation.table_oid)
    return grants if table is None else f"{grants}; then: `pipeline backfill start {table}`"


def warnings(config: Config, source: Connection, pipeline: Connection) -> list[str]:
    """Return a line, with the remedy, for each relation of a failed table that the reading role may not read."""
    stored = sources.find_in_any(pipeline, config.source_id)
    tables = failed(pipeline, stored)
    if not tables:
        return []
    with reading_session.catalog_session(config, source, name="pipeline rights") as reading:
        found = to_read.relations(reading, tables, publications(config, stored), sized=False)
    return [f"{each.lacking}; {remedy(each, tables)}" for each in found if each.lacking]
