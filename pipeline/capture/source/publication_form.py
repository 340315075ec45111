"""Compares what a publication leaves out of its tables: actions, options, row filters and column lists.

This module compares a publication that the server made with what the server would create; the ledger compares it with
its earlier state. So this module also finds what was narrowed before the ledger first stored the publication.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from pipeline import printable
from pipeline.errors import PublicationChangedError
from pipeline.postgres import connections, queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

KEYLESS_SUFFIX = "_keyless"
ACTIONS = {"": ("insert", "update", "delete", "truncate"), KEYLESS_SUFFIX: ("insert", "truncate")}
"""The actions of the publications that the server makes, by the suffix of their names."""


@dataclass(frozen=True)
class _Form:
    """The form of a publication. `partial`: members with a row filter or a column list, as `schema`, `name`, `filter`
    and `columns`.
    """

    name: str
    oid: int
    via_root: bool
    actions: list[str]
    partial: list[dict[str, Any]]

    def difference(self, actions: Sequence[str]) -> str | None:
        """Return how the publication differs from one of all rows and columns with these actions; None if equal."""
        if set(self.actions) != set(actions):
            return f"publishes {', '.join(self.actions) or 'nothing'}, not {', '.join(actions)}"
        if self.via_root:
            return "has publish_via_partition_root"
        return f"sends {_limits_of(self.partial[0])} of table {_table_name(self.partial[0])}" if self.partial else None


def find_difference(source: Connection, made: Mapping[str, int]) -> str | None:
    """Return how one of the server's publications differs from what the server would create, as text; None if none
    does.

    `made`: the publications that the server made, name to oid. A publication of that name with another oid belongs to
    another user. Which tables a publication has is not compared.
    """
    return next((text for _, _, text in _changed_forms(source, made)), None)


def restore(source: Connection, made: Mapping[str, int]) -> list[str]:
    """Make the server's publications what the server would create again; returns how they differed.

    Raises PublicationChangedError if this user may not alter a publication, which is then left as it was.
    """
    texts = []
    for form, actions, text in _changed_forms(source, made):
        statements = _restoring_statements(form, actions)
        try:
            with source.transaction():
                for each in statements:
                    source.execute(each)
        except psycopg.Error as error:
            remedy = printable.sql("; ".join(each.as_string(source) for each in statements))
            raise PublicationChangedError(
                f"{text}, and this user cannot restore it ({connections.one_line(error)}); let its owner run: {remedy}"
            ) from error
        texts.append(text)
    return texts


def partial_tables(source: Connection, publications: Sequence[str]) -> dict[str, str]:
    """Return the tables of which these publications send only some rows or columns: the name, and what is sent."""
    return {
        _table_name(table): f'publication "{form.name}" sends {_limits_of(table)} of it'
        for form in _read(source, publications)
        for table in form.partial
    }


def _read(source: Connection, names: Sequence[str]) -> list[_Form]:
    return queries.rows(source, _Form, statement("capture.source", "publication_forms"), {"publications": list(names)})


def _changed_forms(source: Connection, made: Mapping[str, int]) -> Iterator[tuple[_Form, tuple[str, ...], str]]:
    """Yield each publication of the server that differs: its form, the actions that it should have, and the
    difference.
    """
    for form in _read(source, list(made)):
        main = form.name.removesuffix(KEYLESS_SUFFIX)
        actions = ACTIONS[KEYLESS_SUFFIX if main != form.name and main in made else ""]
        if made[form.name] == form.oid and (text := form.difference(actions)):
            yield form, actions, f'publication "{form.name}" {text}'


def _restoring_statements(form: _Form, actions: Sequence[str]) -> list[sql.Composed]:
    name = sql.Identifier(form.name)
    options = sql.SQL("alter publication {} set (publish = {}, publish_via_partition_root = false)")
    statements = [options.format(name, sql.Literal(", ".join(actions)))]
    for table in form.partial:
        member = sql.Identifier(table["schema"], table["name"])
        for verb in ("drop", "add"):
            statements.append(sql.SQL("alter publication {} {} table only {}").format(name, sql.SQL(verb), member))
    return statements


def _limits_of(table: Mapping[str, Any]) -> str:
    parts = [f"only rows where {table['filter']}"] if table["filter"] else []
    return " and ".join(parts + ([f"only columns {', '.join(table['columns'])}"] if table["columns"] else []))


def _table_name(table: Mapping[str, Any]) -> str:
    return f"{table['schema']}.{table['name']}"
