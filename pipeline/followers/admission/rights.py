"""Finds rights that a follower's user lacks, each with the statement by which an administrator grants it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import psycopg

from pipeline.followers.admission.server import SCHEMA, ServerFacts
from pipeline.followers.admission.tables import TableAtFollower, list_names
from pipeline.postgres.connections import Connection
from pipeline.printable import identifier


@dataclass(frozen=True)
class MissingRight:
    """A right that the user lacks. `text`: what the user may not do, with the remedy if there is no `grant`."""

    text: str
    grant: str | None


def missing_on_server(follower: Connection, facts: ServerFacts) -> Iterator[MissingRight]:
    """Yield the missing rights that an applier needs in every follower, whatever its tables are."""
    user, database = f'user "{facts.user_name}"', identifier(facts.database)
    try:
        with follower.transaction(force_rollback=True):
            follower.execute("set local session_replication_role = 'replica'")
    except psycopg.errors.InsufficientPrivilege:
        text = f"{user} may not set session_replication_role, so triggers and foreign keys of the follower would act"
        if facts.version >= 150000:
            grant = f"grant set on parameter session_replication_role to {facts.quoted_user}"
            yield MissingRight(text, grant)
        else:
            yield MissingRight(f"{text}; before Postgres 15 this needs a superuser", None)
    if not facts.may_make_temporary_tables:
        text = f"{user} may not create temporary tables, which the server needs for new rows"
        yield MissingRight(text, f"grant temporary on database {database} to {facts.quoted_user}")
    if not facts.has_schema and not facts.may_create_schemas:
        grant = f"{_create_on_database(facts)} to {facts.quoted_user}"
        yield MissingRight(f"{user} may not create the schema {SCHEMA}", grant)
    if facts.has_schema and not facts.may_use_schema:
        grant = (
            f"grant usage, create on schema {SCHEMA} to {facts.quoted_user}; "
            f"grant all on all tables in schema {SCHEMA} to {facts.quoted_user}"
        )
        yield MissingRight(f"{user} may not use the schema {SCHEMA} and its tables", grant)


def missing_on_tables(facts: ServerFacts, tables: Sequence[TableAtFollower]) -> Iterator[MissingRight]:
    """Yield the rights that the user lacks to create and write these tables.

    Tables for which one statement grants the right share one result.
    """
    lacking: dict[_LackingRight, list[TableAtFollower]] = {}
    for each in tables:
        for right in _lacking(facts, each):
            lacking.setdefault(right, []).append(each)
    for right, concerned in lacking.items():
        on = f" on {', '.join(identifier(each.schema, each.name) for each in concerned)}" if right.on_tables else ""
        yield MissingRight(f"{right.text} {list_names(concerned)}{right.more}", f"{right.grant}{on}{right.to}")


class _LackingRight(NamedTuple):
    """A right that the user lacks on some tables, whose names are added later.

    `text`: describes the lack; names of tables and `more` follow. `grant`: the statement that gives the right; names of
    tables follow if `on_tables`, then `to`.
    """

    text: str
    grant: str
    to: str
    on_tables: bool = False
    more: str = ""


def _lacking(facts: ServerFacts, each: TableAtFollower) -> Iterator[_LackingRight]:
    user, schema, to = f'user "{facts.user_name}"', identifier(each.schema), f" to {facts.quoted_user}"
    if each.kind is None:
        if each.has_schema and not (each.may_use_schema and each.may_create):
            yield _LackingRight(f"{user} may not create", f"grant usage, create on schema {schema}", to)
        elif not each.has_schema and not facts.may_create_schemas:
            yield _LackingRight(f"{user} may not create", _create_on_database(facts), to)
        return
    if not each.may_use_schema:
        yield _LackingRight(f"{user} may not use the schema of", f"grant usage on schema {schema}", to)
    if each.refused:
        text = f"{user} may not {' and '.join(each.refused)} in"
        yield _LackingRight(text, f"grant {', '.join(each.refused)}", to, on_tables=True)
    if each.secured:
        hides = f" from {user}"
        yield _LackingRight(
            "row security hides rows of", f"alter role {facts.quoted_user}", " with bypassrls", more=hides
        )


def _create_on_database(facts: ServerFacts) -> str:
    return f"grant create on database {identifier(facts.database)}"
