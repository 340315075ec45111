"""The SQL that creates the smallest roles with which the server works, and the publication that they need.

Only missing statements are printed, so the SQL may run again. Names are exact; in comments they are JSON on one line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from psycopg.sql import SQL, Identifier

from pipeline.capture.source import providers, publication_ledger, publishable_tables, slot_mark, sources
from pipeline.capture.source.publishable_tables import PublishableTable
from pipeline.config.settings import Config
from pipeline.errors import ConfigError
from pipeline.findings import SqlRemedy, quoted
from pipeline.operate import superusers
from pipeline.operate.preflight import table_checks
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.printable import in_comment, shortest
from pipeline.snapshots import to_read

REPLICATING, READING = "pipeline", "pipeline_reader"
"""The proposed names of roles."""


@dataclass(frozen=True)
class SourceRoles:
    """The names of the role that replicates and the role that reads rows; the same name means one role for both."""

    replicating: str
    reading: str

    @property
    def one(self) -> bool:
        """True if one role does both."""
        return self.replicating == self.reading


@dataclass(frozen=True)
class _Rights:
    """The rights of a role, and the schemas and tables that it may not use or read. `hidden`: a policy hides rows."""

    present: bool
    may_login: bool
    may_replicate: bool
    may_connect: bool
    schemas: list[str]
    tables: list[str]
    hidden: bool


def parse(text: str) -> SourceRoles:
    """Parse `--roles`: two names divided by a comma, or one name. Raises ConfigError."""
    names = text.split(",")
    if len(names) > 2 or not all(names) or any("\0" in name or len(name.encode()) > 63 for name in names):
        raise ConfigError("--roles takes one name, or two that are divided by a comma, each of at most 63 bytes")
    return SourceRoles(names[0], names[-1])


def proposed(config: Config, source: Connection, unfit: set[str]) -> SourceRoles:
    """The users of the settings as roles, with other names for users that are `unfit`."""
    user, reader = source.info.user, superusers.reading_user(config, source)
    first = REPLICATING if user in unfit else user
    return SourceRoles(first, READING if reader in unfit or reader == user else reader)


def cure(config: Config, source: Connection, pipeline: Connection | None, roles: SourceRoles) -> SqlRemedy | None:
    """The missing statements, with notes for the reader; None if nothing is missing."""
    there = publication_ledger.read_publications(source, [config.publication])
    tables = superusers.captured(config, source, pipeline)
    create = () if there else table_checks.creating(source, config.publication, tables)
    if not there:
        roots = {table.oid for table in table_checks.publishable(tables)}
        tables = [table for table in tables if not roots.isdisjoint(table.line)]
    statements = [
        *of_roles(source, roles, tables, list(there)),
        *create,
        *_mark(config, source, pipeline, made=bool(create)),
    ]
    if not statements:
        return None
    notes = [*_about_roles(source, roles)]
    if not there:
        notes += _about_publications(config, source, pipeline, roles)
    return SqlRemedy("source", tuple(statements), tuple(notes))


def of_roles(
    source: Connection, roles: SourceRoles, tables: Sequence[PublishableTable], publications: Sequence[str] = ()
) -> Iterator[str]:
    """Yield the statements that give the roles what they lack to replicate, and to read these tables.

    If these publications list columns of a table, only the columns that are read are granted.
    """
    oids = [table.oid for table in tables]
    for name in dict.fromkeys((roles.replicating, roles.reading)):
        columns = to_read.unreadable_columns(source, oids, publications, name) if oids else {}
        values = {"role": name, "oids": oids, "whole": [oid for oid in oids if columns.get(oid, ()) == ()]}
        has = queries.one(source, _Rights, statement("operate.preflight", "role_rights"), values)
        assert has is not None  # noqa: S101  the database we are in
        replicates, reads = name == roles.replicating, name == roles.reading
        user, database = Identifier(name), Identifier(source.info.dbname)
        granting = providers.find_provider(source).granting(name) if replicates and not has.may_replicate else ""
        by_attribute = granting.startswith("alter role")
        attributes = [
            *(["login"] if not has.may_login else []),
            *(["replication"] if by_attribute else []),
            *(["bypassrls"] if reads and has.hidden else []),
        ]
        if not has.present or attributes:
            verb = SQL("alter role {} with " if has.present else "create role {} ").format(user)
            yield verb.as_string(source) + " ".join(attributes)
        if granting and not by_attribute:
            yield granting
        if not has.may_connect:
            yield quoted(source, "grant connect on database {database} to {user}", database=database, user=user)
        if has.schemas:
            yield f"grant usage on schema {', '.join(has.schemas)} to {user.as_string(source)}"
        if reads:
            whole = [f" on table {', '.join(has.tables)}"] if has.tables else []
            names = {table.oid: table.table_name.identifier.as_string(source) for table in tables}
            some = [f"{to_read.listed(each)} on table {names[oid]}" for oid, each in columns.items() if each]
            yield from (f"grant select{what} to {user.as_string(source)}" for what in [*whole, *some])


def _mark(config: Config, source: Connection, pipeline: Connection | None, *, made: bool) -> Iterator[str]:
    """Yield the statement that stores the slot's mark in the comment of a publication that the role does not own."""
    if pipeline is None:
        return
    stored = sources.find_in_any(pipeline, config.source_id)
    if stored is not None and config.publication in stored.publications and not made:
        return
    found = slot_mark.marking_statement(source, pipeline, config.publication, config.slot, made=made)
    if found:
        yield found


def _about_roles(source: Connection, roles: SourceRoles) -> Iterator[str]:
    first, reader = in_comment(roles.replicating), in_comment(roles.reading)
    if roles.one:
        yield f"{first} replicates and reads: name it in PIPELINE_SOURCE_DSN, and give it a password."
        yield "The owner of a captured table can then read every change of this database and drop its slots."
    else:
        yield f"{first} replicates: name it in PIPELINE_SOURCE_DSN."
        yield f"{reader} reads rows: name it in PIPELINE_SOURCE_READ_DSN."
        yield "Give both a password."
    stats = f"grant pg_read_all_stats to {shortest(roles.replicating)}"
    yield f"If the server should report the age of other sessions' transactions, also run {in_comment(stats)}"


def _about_publications(
    config: Config, source: Connection, pipeline: Connection | None, roles: SourceRoles
) -> Iterator[str]:
    """Yield notes on how the publication can be created, and the limits of each method."""
    name, first = shortest(config.publication), shortest(roles.replicating)
    mark = (
        slot_mark.marking_statement(source, pipeline, config.publication, config.slot, made=True) if pipeline else None
    )
    add = in_comment(f"alter publication {name} add table only TABLE")
    yield f"The publication below belongs to the role that runs this. Add each new table to it yourself: {add}"
    yield "It has only tables with a replica identity: in other tables, updates and deletes would fail."
    if mark is None:
        yield "After the first start, run this command again: its SQL keeps other servers from taking the slot over."
    grant = in_comment(f"grant create on database {shortest(source.info.dbname)} to {first}")
    yield f"Instead, the role can create its own publication, to which it adds new tables by itself: {grant}"
    yield "But it can only add tables that the role owns, or whose owner's rights it has."
    every = in_comment(f"create publication {name} for all tables")
    yield f"Instead, a superuser can create a publication for all tables, which belongs to that superuser: {every}"
    if mark:
        yield f"That superuser must also keep other servers from taking the slot over: {in_comment(mark)}"
    for table in publishable_tables.read(source, config.publication):
        if table.refuses_updates:
            full = in_comment(f"alter table {shortest(*table.table_name)} replica identity full")
            yield f"With all tables, update and delete fail in {in_comment(str(table))} before {full}"
