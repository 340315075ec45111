"""Follows altered types of the source. A value that the follower refuses reveals them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psycopg
from psycopg import sql

from pipeline.config.settings import Config
from pipeline.errors import DatabaseUnavailableError, FollowedTablesChangedError, StatementRefusedError
from pipeline.followers import connecting
from pipeline.followers.applying import position
from pipeline.followers.applying.position import FollowerPosition
from pipeline.followers.registry import RegisteredFollower
from pipeline.followers.schema_changes import composites, enums, type_alterations
from pipeline.followers.schema_changes.table_names import Name
from pipeline.followers.schema_changes.type_alterations import TypeAlteration
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_ROOM = "followers.schema_changes"


def follow(
    config: Config,
    log: Connection,
    follower: Connection,
    registration: RegisteredFollower,
    cause: BaseException | None,
    called: Mapping[int, Name] | None = None,
) -> bool:
    """Alter the follower's types as the source's types are now, if that may be why it refuses a value.

    Returns True if a type was altered. Each type is altered in its own transaction, because a new label cannot be used
    before that transaction ends. `called`: names of the follower's tables by oid; None if the value is one of a copy,
    because `TypePreparer` alters composite types before a copy. Raises SchemaChangeError if the settings forbid the
    change, or a rename is ambiguous; DatabaseUnavailableError.
    """
    if not isinstance(cause, psycopg.errors.InvalidTextRepresentation) and not (
        isinstance(cause, psycopg.IntegrityError) and cause.diag.datatype_name
    ):
        return False
    here = position.require_existing(follower, registration.source_id, registration.name)
    with connecting.connect_catalog(config) as source:
        if isinstance(cause, psycopg.IntegrityError):
            altered = list(_domain(source, follower, cause))
        elif is_of_composite(cause):
            altered = list(_composites(source, follower, here, called)) if called is not None else []
        else:
            altered = list(enums.alterations(log, source, follower, here))
    return [type_alterations.run(follower, registration, each) for each in altered].count(True) > 0


def remember_labels(config: Config, follower: Connection, registration: RegisteredFollower) -> None:
    """Store the labels of the source's enums before tables are copied, so that later renames can be recognized.

    Nothing is stored if the source does not answer.
    """
    here = position.require_existing(follower, registration.source_id, registration.name)
    if unknown := enums.unknown(follower, here):
        with suppress(DatabaseUnavailableError), connecting.connect_catalog(config) as source:
            enums.remember(source, follower, here, unknown)


@contextmanager
def following_types(
    config: Config, log: Connection, follower: Connection, registration: RegisteredFollower
) -> Iterator[None]:
    """Handle errors of a copy in the block: alter the follower's types if they caused the error.

    Then FollowedTablesChangedError is raised instead, and the copy must be tried again.
    """
    try:
        yield
    except (StatementRefusedError, psycopg.Error) as error:
        cause = error.__cause__ if isinstance(error, StatementRefusedError) else error
        if follow(config, log, follower, registration, cause):
            raise FollowedTablesChangedError(
                f"types of follower {registration.name} were altered for a copy, which must be tried again"
            ) from error
        raise


def is_of_composite(cause: BaseException | None) -> bool:
    """Return True if the follower refused a value because it has another number of attributes than its type."""
    return isinstance(cause, psycopg.errors.InvalidTextRepresentation) and cause.diag.source_function == "record_in"


def is_of_enum(cause: BaseException | None) -> bool:
    """Return True if the follower refused a value that is no label of its type."""
    return isinstance(cause, psycopg.errors.InvalidTextRepresentation) and cause.diag.source_function == "enum_in"


def remember_attributes(
    config: Config, follower: Connection, registration: RegisteredFollower, called: Mapping[int, Name]
) -> None:
    """Store the attributes of the source's composite types, as long as the follower's types have the same ones.

    `called`: names of the follower's tables. Call this once all altered types that the log knows have been followed.
    """
    here = position.require_existing(follower, registration.source_id, registration.name)
    if unknown := composites.unknown(follower, here, [".".join(name) for name in called.values()]):
        with suppress(DatabaseUnavailableError), connecting.connect_catalog(config) as source:
            for each in composites.differences(source, follower, here, unknown):
                if each.is_same and each.known is None:
                    type_alterations.run(follower, registration, each.record(here))


@dataclass(frozen=True)
class UncertainTables:
    """Tables of a follower whose composite values cannot be interpreted, by oid.

    `ambiguous`: events do not tell which attributes a value has. `unknown`: nothing is stored about a type of the
    values, so it is unknown if the type was altered.
    """

    ambiguous: set[int]
    unknown: set[int]


def follow_renamed_attributes(
    config: Config, follower: Connection, registration: RegisteredFollower, called: Mapping[int, Name]
) -> UncertainTables:
    """Rename attributes of composite types as at the source, before events with their values are applied.

    Returns the tables whose values are uncertain. Raises SchemaChangeError if the settings forbid the change, or the
    follower refuses it; DatabaseUnavailableError.
    """
    here = position.require_existing(follower, registration.source_id, registration.name)
    oids = {".".join(name): oid for oid, name in called.items()}
    uncertain = UncertainTables(set(), set())
    if not (types := composites.read(follower, oids)):
        return uncertain
    with connecting.connect_catalog(config) as source:
        listed = composites.differences(source, follower, here, types)
    for each in listed:
        tables = {oids[table] for table, _ in each.at_follower.columns if table in oids}
        if each.known is None:
            uncertain.unknown.update(tables)
        if not (each.is_clear or (each.known is None and each.is_same)):
            uncertain.ambiguous.update(tables)
        elif each.renamed and not each.at_follower.is_of_table:
            type_alterations.run(follower, registration, each.alteration(here, drops=False, adds=0))
        elif each.is_same and each.known is not None and not each.is_known:
            type_alterations.run(follower, registration, each.record(here))
    return uncertain


def _composites(
    source: Connection, follower: Connection, here: FollowerPosition, called: Mapping[int, Name]
) -> Iterator[TypeAlteration]:
    """Yield alterations that add the next attribute that a value may have, or drop one that a value may lack."""
    types = composites.read(follower, [".".join(name) for name in called.values()])
    for each in composites.differences(source, follower, here, types):
        if each.is_clear and each.added:
            yield each.alteration(here, drops=False, adds=1)
        elif each.is_clear and each.dropped:
            yield each.alteration(here)


def _domain(source: Connection, follower: Connection, refused: psycopg.IntegrityError) -> Iterator[TypeAlteration]:
    """Yield an alteration that drops a violated check or not null of a domain, if the source's domain lacks it.

    A check that is NOT VALID at the source counts as lacking.
    """
    diag = refused.diag
    values = {"schema": diag.schema_name, "name": diag.datatype_name}
    query = statement(_ROOM, "domain_checks")
    theirs = {(name, text.removesuffix(" NOT VALID")): valid for name, text, valid in source.execute(query, values)}
    for name, text, _ in follower.execute(query, values):
        if name != (diag.constraint_name or "") or theirs.get((name, text.removesuffix(" NOT VALID"))):
            continue
        domain = sql.Identifier(diag.schema_name or "", diag.datatype_name or "")
        how = sql.SQL("drop constraint {}").format(sql.Identifier(name)) if name else sql.SQL("drop not null")
        what = f"has no check {name} at the source" if name else "takes nulls at the source"
        altered = sql.SQL("alter domain {} {}").format(domain, how)
        yield TypeAlteration(f"{diag.schema_name}.{diag.datatype_name}", what, [altered])
