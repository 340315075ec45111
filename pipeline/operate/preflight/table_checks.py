"""The tables' part of the preflight: which are published, which cannot be, and whose updates a publication prevents."""

from __future__ import annotations

from collections.abc import Iterable
from typing import LiteralString

from psycopg.sql import SQL, Identifier

from pipeline.capture.replication import prepare
from pipeline.capture.source import publication_ledger, publishable_tables
from pipeline.capture.source.publication_ledger import PublicationState
from pipeline.capture.source.publications import Publisher
from pipeline.capture.source.publishable_tables import PublishableTable
from pipeline.capture.source.sources import ReplicationSource
from pipeline.config.settings import Config
from pipeline.errors import PublicationMissingError
from pipeline.findings import CheckFinding, CheckFindings, SqlRemedy, first_names, of_error, quoted
from pipeline.postgres import databases
from pipeline.postgres.connections import Connection
from pipeline.printable import identifier

_ADD_KEY = "add a primary key, or: alter table … replica identity full"


def run(
    config: Config, source: Connection, pipeline: Connection | None, stored: ReplicationSource | None
) -> CheckFindings:
    """Yield findings on the tables of the source and their publications. Parameters as in `source_checks.run`."""
    publisher = prepare.publisher(config, source, pipeline)
    tables = publisher.tables()
    publication = publication_ledger.read_publications(source, [config.publication]).get(config.publication)
    made = stored.publications if stored else {}
    if publisher.unmatched:
        used_as_it_is = publication is not None and made.get(config.publication) != publication.oid
        text, _, remedy = publisher.unmatched.partition("; ")
        yield CheckFinding("warning" if used_as_it_is else "error", "tables", text, remedy, waits=True)
    elif not tables:
        yield CheckFinding("ok", "tables", "the source has no tables yet; tables that are created later are captured")
    if publication is not None and pipeline is None and databases.is_elsewhere(config):
        text = f'"{config.publication}" exists; who created it is known once the pipeline database answers'
        yield CheckFinding("ok", "publication", text)
    elif publication is None:
        yield from _to_be_made(config, source, publisher, tables)
    elif made.get(config.publication) == publication.oid:
        yield CheckFinding("ok", "publication", f'"{config.publication}" was created by this server')
        yield from _own_publications(source, tables)
        yield from _not_replicated(publisher.unpublishable())
    else:
        yield from _foreign_publication(source, publication, tables, publisher.missing(made))


def _to_be_made(
    config: Config, source: Connection, publisher: Publisher, tables: list[PublishableTable]
) -> CheckFindings:
    """Yield findings if no publication exists yet; an administrator can create it, or let this user create one."""
    create = creating(source, config.publication, tables)
    try:
        publisher.require_possible()
    except PublicationMissingError as error:
        if not tables or all(table.owned for table in publishable_tables.find_uncovered(tables, ())):
            text = "grant create on database {database} to {user}"
            names = {"database": Identifier(source.info.dbname), "user": Identifier(source.info.user)}
            create = (quoted(source, text, **names),)
        found = of_error("tables", error)
        yield CheckFinding(found.level, found.name, found.text, found.remedy, found.waits, _cure(create))
        return
    yield CheckFinding("ok", "publication", f'"{config.publication}" will be created')
    yield from _own_publications(source, tables, create)
    yield from _not_replicated(publisher.unpublishable())


def _own_publications(
    source: Connection, tables: list[PublishableTable], create: tuple[str, ...] = ()
) -> CheckFindings:
    """Yield findings if this server creates the publications. `create`: how an administrator creates one instead."""
    left = publishable_tables.find_uncovered(tables, ())  # of partitioned tables, the roots
    not_owned = [table for table in left if not table.owned]
    keyless = [table for table in tables if table.lacks_key and table.owned]
    if not_owned:
        text = (
            f"{first_names(not_owned)}: this user cannot publish them: it does not own them or may not use their schema"
        )
        remedy = f'make "{source.info.user}" a member of their owner, or leave them out with PIPELINE_TABLES'
        if len(not_owned) == len(left):
            yield CheckFinding("error", "table owners", text, remedy, waits=True, cure=_cure(create))
        else:
            yield CheckFinding("warning", "table owners", text, remedy, waits=True)
    if keyless:
        text = (
            f"{first_names(keyless)}: without a replica identity only inserts and truncates are captured; updates and "
            "deletes there still work, but are not captured"
        )
        yield CheckFinding("warning", "replica identity", text, _ADD_KEY)
    if tables and not not_owned and not keyless:
        yield CheckFinding("ok", "tables", f"{len(left)} match, all with a replica identity")


def _not_replicated(found: dict[str, list[str]]) -> CheckFindings:
    """Report tables that Postgres cannot replicate. This is no warning, because no setting changes it."""
    if found:
        text = "; ".join(f"{kind}: {first_names(names)}" for kind, names in found.items())
        yield CheckFinding("ok", "not replicated", f"Postgres does not replicate: {text}")


def _foreign_publication(
    source: Connection, publication: PublicationState, tables: list[PublishableTable], missing: dict[str, str]
) -> CheckFindings:
    """Yield findings on a publication that this server did not create: it is used as it is."""
    name = publication.name
    left_out = [
        f"{action}s" for action in ("insert", "update", "delete", "truncate") if action not in publication.actions
    ]
    yield CheckFinding("ok", "publication", f'"{name}" was not created by this server, and is used as it is')
    if publication.via_root:
        text = f'"{name}" has publish_via_partition_root: truncates of single partitions are never sent'
        remedy = f"alter publication {identifier(name)} set (publish_via_partition_root = false)"
        yield CheckFinding("warning", "publication root", text, remedy)
    if left_out:
        text = f'"{name}" does not publish {" and ".join(left_out)}'
        yield CheckFinding(
            "warning", "publication actions", text, f"alter publication {identifier(name)} set (publish = …)"
        )
    failing = [f"{action}s" for action in ("update", "delete") if action in publication.actions]
    refusing = [table for table in publishable_tables.find_covered(tables, [publication]) if table.refuses_updates]
    if refusing and failing:
        text = f'{first_names(refusing)} in "{name}" without a replica identity: {" and ".join(failing)} of them fail'
        yield CheckFinding("warning", "replica identity", text, _ADD_KEY)
    if missing:
        text = f'{first_names(missing)}: not in "{name}", so not captured'
        remedy = f"alter publication {identifier(name)} add table …, or correct PIPELINE_TABLES"
        harmless = [table for table in tables if str(table) in missing and (table.keyed or not failing)]
        add = _statement(source, "alter publication {publication} add table {tables}", name, harmless)
        yield CheckFinding("warning", "tables", text, remedy, cure=_cure(add))
    elif tables:
        matching = publishable_tables.find_uncovered(tables, ())  # of partitioned tables, the roots
        yield CheckFinding("ok", "tables", f"all {len(matching)} that match are published")


def publishable(tables: Iterable[PublishableTable]) -> list[PublishableTable]:
    """The tables of a publication by an administrator: only tables with a key, since updates of others would fail."""
    keyed = {table.oid: table for table in tables if table.keyed}
    return [table for table in keyed.values() if keyed.keys().isdisjoint(table.line[1:])]


def creating(source: Connection, publication: str, tables: Iterable[PublishableTable]) -> tuple[str, ...]:
    """The statement by which an administrator creates the publication, in a tuple; no statement without tables."""
    text: LiteralString = "create publication {publication} for table {tables}"
    if source.info.server_version >= 180000:
        text += " with (publish_generated_columns = stored)"
    return _statement(source, text, publication, publishable(tables))


def _statement(
    source: Connection, text: LiteralString, publication: str, tables: list[PublishableTable]
) -> tuple[str, ...]:
    """A statement about a publication, in a tuple; empty without tables. ONLY: children of a table may lack a key."""
    if not tables:
        return ()
    listed = SQL(", ").join(SQL("only {}").format(table.table_name.identifier) for table in tables)
    return (quoted(source, text, publication=Identifier(publication), tables=listed),)


def _cure(statements: tuple[str, ...]) -> SqlRemedy | None:
    return SqlRemedy("source", statements) if statements else None
