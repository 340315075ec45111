"""Any value of any type, drawn by hypothesis: what the log gives back is the source's row, on Postgres 18 and on 15.

A failure prints the values that it takes. `make test` draws the same ones each time, `make long` others.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.fidelity.types.stage import Comparing
from tests.fidelity.types.strategies import COLUMNS, array_of
from tests.fidelity.types.tables import DRAWN

pytestmark = pytest.mark.xdist_group("fidelity")

EXAMPLES, LONG = 4, 400
ROWS = 8
FAST = settings(
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    database=None,
    print_blob=True,
    phases=[Phase.generate],  # a failure shows its rows, and which columns: to make them smaller takes minutes
    suppress_health_check=list(HealthCheck),
)
_ids = itertools.count(1)


def rows(types: list[str]) -> st.SearchStrategy[list[tuple[str | None, ...]]]:
    """Rows of a table that has a column and an array column of each type."""
    columns = [column for name in types for column in (COLUMNS[name], array_of(name))]
    return st.lists(st.tuples(*[st.none() | column for column in columns]), min_size=1, max_size=ROWS)


def check(stage: Comparing, table: str, drawn: list[tuple[str | None, ...]]) -> None:
    """Insert the rows, and compare what their events give back."""
    before = stage.head()
    stage.start()
    with stage.source.cursor().copy(f"copy public.{table} from stdin") as copy:
        for row in drawn:
            copy.write_row((next(_ids), *row))
    stage.arrive()
    events = stage.events(table, before)
    assert len(events) == len(drawn)
    assert stage.differing(table, events) == []


@pytest.mark.parametrize("table", DRAWN)
@given(data=st.data())
@FAST
def test_any_value_comes_back(stage: Comparing, table: str, data: Any) -> None:
    check(stage, table, data.draw(rows(DRAWN[table])))


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("table", DRAWN)
@given(data=st.data())
@settings(FAST, max_examples=LONG, derandomize=False)
def test_any_other_value_comes_back(stage: Comparing, table: str, data: Any) -> None:
    check(stage, table, data.draw(rows(DRAWN[table])))
