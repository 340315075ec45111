"""Every type, and arrays of each, from a source to the log and back: no value differs, on Postgres 18 and 15."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from psycopg import sql

from tests.fidelity.types import cases, page, tables
from tests.fidelity.types.cases import Case
from tests.fidelity.types.conftest import MAJORS
from tests.fidelity.types.stage import Comparing, Event

pytestmark = pytest.mark.xdist_group("fidelity")  # for --dist loadgroup: one server of each version

REFUSED = {"pg_node_tree", "pg_ndistinct", "pg_dependencies", "pg_mcv_list", "gtsvector"}
"""Types whose texts Postgres itself does not read, see docs/reference/types.md."""
REFUSED |= {"pg_brin_bloom_summary", "pg_brin_minmax_multi_summary"}
BUILT_IN = """
    select format_type(t.oid, null) from pg_type t
    where t.typnamespace = 'pg_catalog'::regnamespace and t.typtype in ('b', 'r', 'm') and t.typcategory <> 'A'
        and t.typname <> all(%s) and t.typarray <> 0
    union all values ('int2vector'), ('oidvector')
"""


class Kinds:
    """One table for each group of cases, a column and an array column for each case, replicated."""

    def __init__(self, stage: Comparing) -> None:
        self.stage = stage
        self.groups = {title: tables.columns(stage.source, title) for title in cases.GROUPS}
        stage.replicate(*[statement for title in cases.GROUPS for statement in self._inserts(title)])
        self.events = {title: stage.events(title) for title in cases.GROUPS}

    def _inserts(self, title: str) -> Iterator[sql.Composed]:
        """The last row is null everywhere it may be."""
        columns = self.groups[title]
        rows = max(len(case.values) for case in columns.values())
        arrays = {name: array_values(case) for name, case in columns.items() if case.nulls}
        for number in range(max(rows, 6) + 1):
            given: dict[str, sql.Composable] = {name: scalar(case, number, rows) for name, case in columns.items()}
            given |= {f"{name}_array": chosen(values, number) for name, values in arrays.items()}
            yield sql.SQL("insert into public.{} (id, {}) values ({}, {})").format(
                sql.Identifier(title),
                sql.SQL(", ").join(map(sql.Identifier, given)),
                number,
                sql.SQL(", ").join(given.values()),
            )


def cast(value: str | None, case: Case) -> sql.Composed:
    return sql.SQL("cast({} as {})").format(sql.Literal(value), sql.SQL(case.type))


def scalar(case: Case, number: int, rows: int) -> sql.Composed:
    if number >= len(case.values) and (number >= rows or case.nulls):
        return cast(None if case.nulls else case.values[0], case)
    return cast(case.values[min(number, len(case.values) - 1)], case)


def array_values(case: Case) -> list[sql.Composable]:
    """All values and a NULL, two and three dimensions, own lower bounds, an empty one, one of NULL."""
    null, first, last = cast(None, case), cast(case.values[0], case), cast(case.values[-1], case)
    every = sql.SQL(", ").join([cast(value, case) for value in case.values])
    return [
        sql.SQL("array[{}, {}]").format(every, null),
        sql.SQL("array[array[{}, {}], array[{}, {}]]").format(first, null, last, first),
        sql.SQL("array[array[array[{}]], array[array[{}]]]").format(first, last),
        sql.SQL("array_fill({}, array[2, 2], array[-3, 7])").format(last),
        sql.SQL("'{}'"),
        sql.SQL("array[{}]").format(null),
    ]


def chosen(values: list[sql.Composable], number: int) -> sql.Composable:
    return values[number] if number < len(values) else sql.NULL


@pytest.fixture(scope="module", params=MAJORS)
def kinds(request: pytest.FixtureRequest, stages) -> Kinds:
    return Kinds(stages(request.param))


@pytest.mark.parametrize("title", cases.GROUPS)
def test_every_value_and_array_comes_back(kinds: Kinds, title: str) -> None:
    rows = kinds.stage.source.execute(f'select count(*) from public."{title}"').fetchone()
    assert rows == (len(kinds.events[title]),)
    assert kinds.stage.differing(title, kinds.events[title]) == []


@pytest.mark.parametrize("title", cases.GROUPS)
def test_each_type_is_in_record_as_the_page_says(kinds: Kinds, title: str) -> None:
    first: Event = kinds.events[title][0]
    rows = kinds.stage.log.execute("select key, value::text from jsonb_each(%s::jsonb)", [first.record])
    written = {name: text for name, text in rows if name in kinds.groups[title]}
    assert written == {name: case.in_record() for name, case in kinds.groups[title].items()}


def test_no_built_in_type_is_left_out(kinds: Kinds) -> None:
    source = kinds.stage.source
    of_cases = source.execute(
        "select format_type(to_regtype(type), null) from unnest(%s::text[]) as type",
        [[case.type for columns in kinds.groups.values() for case in columns.values()]],
    ).fetchall()
    built_in = source.execute(BUILT_IN, [list(REFUSED)]).fetchall()
    assert sorted(set(built_in) - set(of_cases)) in ([], [("xml",)])


def test_the_page_says_what_is_proved() -> None:
    """`python -m tests.fidelity.types.page` writes it."""
    assert page.PART.is_current(page.table())
