"""Carries deeds out on the odd tables: what cannot be done now is taken back and counted, and the writer goes on."""

from __future__ import annotations

import random
import re
from collections import Counter
from typing import Any

import psycopg

from tests.torture.oracle.watching import NOTE
from tests.torture.plan.deeds_rows import ROW_DEEDS, RowDeeds
from tests.torture.plan.deeds_shapes import OUTSIDE, ShapeDeeds
from tests.torture.writers import shapes
from tests.torture.writers.shapes import Unfit

SESSION = "-c lock_timeout=60ms -c statement_timeout=30s -c search_path="
"""No step waits for a lock for long: the step that would free it may be the next one to begin."""
REFUSALS = re.compile(
    r"22|23|0A000|2BP01|42P0[167]|42P1[067]|427(01|10)|42703|42704|42804|42883|3F000|40001|40P01|XX000|5500|55P0[34]|54000"
)
"""sqlstates of what a table, or another writer, may have against a deed: its values, its form, its locks, and internal
errors of Postgres about a table that goes away just then."""
_PUBLISHED = "select array_agg((prpubid, prrelid) order by prpubid, prrelid)::text from pg_publication_rel"
_TOUCHED = """
    select (form ->> 'oid')::oid, form -> 'told' from private.witness
    where xid = pg_current_xact_id()::text::bigint & 4294967295 and form is not null group by 1, 2"""
_TREE = """
    select quote_ident(n.nspname) || '.' || quote_ident(c.relname)
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where c.oid = any(%(oids)s) or c.oid in (select pg_partition_ancestors(o) from unnest(%(oids)s::oid[]) o)
    order by c.oid"""


class Moved(Exception):
    """What is published of a table changed while it was written to: what becomes of such a change is Postgres's."""


class OddTableWriter:
    """`tally`: how often each deed was done, and `deed: sqlstate` how often it could not be."""

    def __init__(self, tally: Counter[str]) -> None:
        self._tally = tally

    def deed(self, connection: psycopg.Connection, text: str) -> None:
        """Inside of a transaction; it stays usable."""
        name = text.split(" #")[0]
        connection.execute("savepoint deed")
        try:
            before = _one(connection, _PUBLISHED)
            for statement in self._statements(connection, text):
                connection.execute(statement)
            if name not in ROW_DEEDS:
                connection.execute(NOTE)
            elif _one(connection, _PUBLISHED) != before:
                raise Moved
        except (Unfit, Moved) as error:
            connection.execute("rollback to deed; release deed")
            self._tally[f"{name}: {type(error).__name__}"] += 1
        except psycopg.Error as error:
            if not self._refused(name, error):
                raise
            connection.execute("rollback to deed; release deed")
        else:
            connection.execute("release deed")
            self._tally[name] += 1

    def outside(self, connection: psycopg.Connection, text: str) -> None:
        """Between two transactions."""
        name, seed = text.split(" #")
        try:
            table = shapes.pick(random.Random(int(seed)), [t for t in shapes.tables(connection) if t.kind == "r"])
            target = f"{table.sql} using {shapes.quoted(table.primary_key)}" if table.primary_key else table.sql
            connection.execute(OUTSIDE[name](target if name == "cluster" else table.sql))
            self._tally[name] += 1
        except Unfit:
            return
        except psycopg.Error as error:
            if not self._refused(name, error):
                raise

    def settle(self, connection: psycopg.Connection) -> bool:
        """Before an end: whether all tables that were written to are published as they were then, and stay so.

        A transaction that writes to a table while it joins or leaves a publication may be published or not, as it
        comes (postgres-facts.md 18): none here does.
        """
        try:
            touched = connection.execute(_TOUCHED).fetchall()
            names = [name for (name,) in connection.execute(_TREE, {"oids": [oid for oid, _ in touched]})]
            for name in names:
                connection.execute(f"lock table only {name} in share update exclusive mode")
            for oid, told in touched:
                form = _one(connection, f"select private.form_of({oid}) -> 'told'")
                if form is not None and form != told:
                    return False
        except psycopg.Error as error:
            if not self._refused("settle", error):
                raise
            return False
        return True

    def _statements(self, connection: psycopg.Connection, text: str) -> list[str]:
        name, seed = text.split(" #")
        tables = shapes.tables(connection)
        moods = _one(connection, "select array_agg(enumlabel::text) from pg_enum") or []
        deeds = (RowDeeds if name in ROW_DEEDS else ShapeDeeds)(random.Random(int(seed)), tables, moods)
        found: list[str] = getattr(deeds, name)()
        return found

    def _refused(self, name: str, error: psycopg.Error) -> bool:
        refused = error.sqlstate is not None and REFUSALS.match(error.sqlstate) is not None
        if refused:
            self._tally[f"{name}: {error.sqlstate}"] += 1
        return refused


def _one(connection: psycopg.Connection, query: str) -> Any:
    row = connection.execute(query).fetchone()
    return row[0] if row else None
