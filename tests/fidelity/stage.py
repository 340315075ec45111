"""A source replicated by the real worker and shuffler, and its rows compared with what their events give back."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
from psycopg import sql

from pipeline import config as settings
from pipeline.catalog import sources
from pipeline.events.log import DEFAULT
from pipeline.shuffle.worker import Shuffler
from pipeline.wal.encoding import SESSION_SETTINGS
from tests.fixtures.postgres import unique
from tests.fixtures.replicating import Replicating
from tests.fixtures.server import ROOT
from tests.fixtures.waiting import eventually

TIMEOUT = 60
"""Seconds; what runs beside takes its share."""
POPULATE = (ROOT / "alembic" / "versions" / "0006_functions" / "populate.sql").read_text()
DOCUMENTS = ("json_out", "jsonb_out")
"""Output functions of types whose values are embedded in `record`; a domain has that of what it is over."""
SAME = "(select x from (select {a} as v) x) *= (select y from (select {b} as v) y)"
"""Equal by their binary images; unlike `=`, it is there for every type."""
COLUMNS = """
    select a.attname, format_type(a.atttypid, a.atttypmod), t.typoutput::regproc::text
    from pg_attribute a join pg_type t on t.oid = a.atttypid
    where a.attrelid = %s::regclass and a.attnum > 0 and not a.attisdropped order by a.attnum
"""


@dataclass(frozen=True)
class Event:
    """What a reader has of a change, jsonb as its text."""

    seq: int
    action: str
    record_pk: str
    record: str
    exact: str | None
    unchanged_columns: list[str] | None


class Stage:
    """`source` prints values as the worker sees them, and has no search_path; `log` is the pipeline database.

    Tables must be there before the first `replicate`, which makes slot and publications.
    """

    def __init__(self, source_dsn: str, database_dsn: str) -> None:
        self.source = psycopg.connect(source_dsn, autocommit=True, client_encoding="UTF8")
        for setting in SESSION_SETTINGS.items():
            self.source.execute("select set_config(%s, %s, false)", setting)
        self.log = psycopg.connect(database_dsn, autocommit=True)
        self._config = settings.load(source_dsn=source_dsn, database_dsn=database_dsn, slot=unique("slot"))
        self._replicating: Replicating | None = None
        self._marks = itertools.count(1)
        self._install()

    def _install(self) -> None:
        """The function that readers have, beside the rows that it is to give back."""
        self.source.execute("create schema pipeline")
        self.source.execute(POPULATE.encode())
        self.source.execute("create temp table events (record_pk text, record jsonb, exact jsonb)")

    def close(self) -> None:
        """End what runs; the databases are the caller's."""
        try:
            if self._replicating is not None:
                self._replicating.__exit__()
        finally:
            self.source.close()
            self.log.close()

    def replicate(self, *statements: str | sql.Composed) -> None:
        """Run them at the source as one transaction, and wait until the log has it."""
        with self.replicated():
            for statement in statements:
                self.source.execute(statement.encode() if isinstance(statement, str) else statement)

    @contextmanager
    def replicated(self) -> Iterator[None]:
        """What the block does at the source is one transaction, and in the log after the block."""
        if self._replicating is None:
            self._replicating = Replicating(self._config).__enter__()
            eventually(self._replicating._streams, TIMEOUT)
        mark = str(next(self._marks))
        with self.source.transaction():
            yield
            self.source.execute("select pg_logical_emit_message(true, 'mark', %s)", [mark])
        eventually(lambda: self._arrived(mark), TIMEOUT)

    def _arrived(self, mark: str) -> bool:
        assert self._replicating is not None
        if self._replicating._error is not None:
            raise self._replicating._error
        stored = sources.find(self.log, None)
        assert stored is not None
        Shuffler(self.log, stored.id, DEFAULT, stopping=lambda: False).step()
        query = "select from public.sequin_events where source_table_oid = 0 and record ->> 'content' = %s"
        return self.log.execute(query, [mark]).fetchone() is not None

    def events(self, table: str, after: int = 0) -> list[Event]:
        """Events of a table of schema public, in order."""
        rows = self.log.execute(
            "select seq, action, record_pk, record::text, exact::text, unchanged_columns from public.sequin_events"
            " where source_table_schema = 'public' and source_table_name = %s and seq > %s order by seq",
            [table, after],
        )
        return [Event(*row) for row in rows]

    def head(self) -> int:
        """The newest seq."""
        row = self.log.execute("select coalesce(max(seq), 0) from public.sequin_events").fetchone()
        assert row is not None
        return int(row[0])

    def differing(
        self, table: str, events: Sequence[Event], *, each_column: bool = True
    ) -> list[tuple[str, list[str]]]:
        """Of each event whose row it does not give back: its id, and the columns, or `row` for what populate makes.

        Rows are found by their column `id`, which is the key. Without `each_column`, rows alone are looked at.
        """
        self.source.execute("truncate pg_temp.events")
        with self.source.cursor().copy("copy pg_temp.events from stdin") as copy:
            for event in events:
                copy.write_row((event.record_pk, event.record, event.exact))
        return self.source.execute(self._comparison(table, each_column)).fetchall()

    def _comparison(self, table: str, each_column: bool) -> sql.Composed:
        name = sql.Identifier("public", table)
        columns = self.source.execute(COLUMNS, [name.as_string(self.source)]).fetchall()
        checks = [_check(*column) for column in columns if each_column]
        return sql.SQL(
            "select e.record_pk, c.wrong from pg_temp.events e left join {table} t on e.record_pk = t.id::text"
            " cross join lateral (select pipeline.populate(null::{table}, e.record, e.exact) as filled) p"
            " cross join lateral (select array_remove(array[{checks}]::text[]"
            "     || case when t *= p.filled and t::text = p.filled::text then null else 'row'::text end, null)"
            "     as wrong) c"
            " where c.wrong <> array[]::text[]"
        ).format(table=name, checks=sql.SQL(", ").join(checks))


def _check(column: str, type_name: str, output: str) -> sql.Composed:
    """The column's name where the event's value, cast as readers cast it, is another than the row's."""
    text = "e.record ->> {name}"
    if output.removeprefix("pg_catalog.") in DOCUMENTS:
        text = "coalesce(e.exact ->> {name}, nullif(e.record -> {name}, 'null')::text)"
    same = SAME.format(a="t.{column}", b=f"({text})::{{type}}")
    printed = f"format('%%s', t.{{column}}) = format('%%s', ({text})::{{type}})".replace("%%", "%")
    return sql.SQL(f"case when ({same}) and ({printed}) then null else {{name}}::text end").format(
        name=sql.Literal(column),
        column=sql.Identifier(column),
        type=sql.SQL(type_name),
    )
