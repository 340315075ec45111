"""A source replicated by the real worker and shuffler, and its rows compared with what their events give back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import sql

from pipeline.config.settings import Config
from tests.fixtures.server import ROOT
from tests.fixtures.stage import Stage

POPULATE = (ROOT / "pipeline" / "log" / "functions" / "populate.sql").read_text()
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


class Comparing(Stage):
    """`source` prints values as the worker sees them, and has no search_path.

    Tables must be there before the first `replicate`, which makes slot and publications.
    """

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.print_as_worker()
        self._install()

    def _install(self) -> None:
        """The function that readers have, beside the rows that it is to give back."""
        self.source.execute("create schema pipeline")
        self.source.execute(POPULATE.encode())
        self.source.execute("create temp table events (record_pk text, record jsonb, exact jsonb)")

    def replicate(self, *statements: str | sql.Composed) -> None:
        """Run them at the source as one transaction, and wait until the log has it."""
        self.start()
        self.transaction(*statements)
        self.arrive()

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
