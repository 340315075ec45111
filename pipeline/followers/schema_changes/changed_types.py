"""Types of the source that have changed: a value that the follower refuses tells that, and what is needed is added."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg
from psycopg import sql

from pipeline.config.settings import Config
from pipeline.errors import Refused, TablesChanged, Unavailable
from pipeline.followers import connecting
from pipeline.followers.applying import position
from pipeline.followers.registry import Follower
from pipeline.followers.schema_changes import altered_types, composites, enums
from pipeline.followers.schema_changes.altered_types import TypeAlteration
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_ROOM = "followers.schema_changes"


def follow(
    config: Config,
    log: Connection,
    follower: Connection,
    found: Follower,
    cause: BaseException | None,
    *,
    of_event: bool,
) -> bool:
    """Give the follower's types what the source's have by now, which may be why it refuses a value; whether any lacked.

    Each is altered in a transaction of its own: none may use a label before that has ended. `of_event`: False for a
    value of a copy, which may come before events that have other attributes of a composite. Raises SchemaStopped where
    it is not to follow, or where it is not clear what was renamed; Unavailable.
    """
    if not isinstance(cause, psycopg.errors.InvalidTextRepresentation) and not (
        isinstance(cause, psycopg.IntegrityError) and cause.diag.datatype_name
    ):
        return False
    here = position.existing(follower, found.source_id, found.name)
    with connecting.connect_catalog(config) as source:
        if isinstance(cause, psycopg.IntegrityError):
            altered = list(_domain(source, follower, cause))
        elif cause.diag.source_function == "record_in":
            altered = list(composites.alterations(source, follower)) if of_event else []
        else:
            altered = list(enums.alterations(log, source, follower, here))
    return [altered_types.run(follower, found, each) for each in altered].count(True) > 0


def remember_labels(config: Config, follower: Connection, found: Follower) -> None:
    """Store what the source's enums are before tables are copied: what is renamed from then on is known as that.

    Not if the source does not answer.
    """
    here = position.existing(follower, found.source_id, found.name)
    if unknown := enums.unknown(follower, here):
        with suppress(Unavailable), connecting.connect_catalog(config) as source:
            enums.remember(source, follower, here, unknown)


@contextmanager
def followed(config: Config, log: Connection, follower: Connection, found: Follower) -> Iterator[None]:
    """Raises TablesChanged if the follower's types lacked what a copy inside needs, and have it by now."""
    try:
        yield
    except (Refused, psycopg.Error) as error:
        cause = error.__cause__ if isinstance(error, Refused) else error
        if follow(config, log, follower, found, cause, of_event=False):
            raise TablesChanged(f"types of follower {found.name} have what a copy needs by now") from error
        raise


def _domain(source: Connection, follower: Connection, refused: psycopg.IntegrityError) -> Iterator[TypeAlteration]:
    """A check of a domain that the source's lacks, or does not ask of all values; or its not null."""
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
