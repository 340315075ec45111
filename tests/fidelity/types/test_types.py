"""Every type, and arrays of each, from a source to the log and back: no value differs, on Postgres 18 and 15."""

from __future__ import annotations

import pytest

from tests.fidelity.types import cases, page
from tests.fidelity.types.kinds import Kinds
from tests.fidelity.types.stage import Event

pytestmark = pytest.mark.xdist_group("fidelity")  # for --dist loadgroup: one server of each version
on_both = pytest.mark.parametrize("kinds", [18, 15], indirect=True)

REFUSED = {"pg_node_tree", "pg_ndistinct", "pg_dependencies", "pg_mcv_list", "gtsvector"}
"""Types whose texts Postgres itself does not read, see docs/reference/types.md."""
REFUSED |= {"pg_brin_bloom_summary", "pg_brin_minmax_multi_summary"}
BUILT_IN = """
    select format_type(t.oid, null) from pg_type t
    where t.typnamespace = 'pg_catalog'::regnamespace and t.typtype in ('b', 'r', 'm') and t.typcategory <> 'A'
        and t.typname <> all(%s) and t.typarray <> 0
    union all values ('int2vector'), ('oidvector')
"""


@on_both
@pytest.mark.parametrize("title", cases.GROUPS)
def test_every_value_and_array_comes_back(kinds: Kinds, title: str) -> None:
    rows = kinds.stage.source.execute(f'select count(*) from public."{title}"').fetchone()
    assert rows == (len(kinds.events[title]),)
    assert kinds.stage.differing(title, kinds.events[title]) == []


@on_both
@pytest.mark.parametrize("title", cases.GROUPS)
def test_each_type_is_in_record_as_the_page_says(kinds: Kinds, title: str) -> None:
    first: Event = kinds.events[title][0]
    rows = kinds.stage.log.execute("select key, value::text from jsonb_each(%s::jsonb)", [first.record])
    written = {name: text for name, text in rows if name in kinds.groups[title]}
    assert written == {name: case.in_record() for name, case in kinds.groups[title].items()}


@on_both
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
