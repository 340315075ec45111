"""Where routes send a table's changes: the export reads them as the shuffler does."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from lake.states.divided_tables import CHANGES, destinations
from pipeline.config import routes
from pipeline.config.routes import Route

DEFAULT = "public.sequin_events"
ROUTES = [
    Route(tables=("shop.audit_*", "*.log"), events_table="a.a"),
    Route(tables=("shop.[x]", "shop.a.b"), events_table="b.b"),
    Route(actions=("delete", "truncate"), events_table="c.c"),
    Route(tables=("shop.*",), actions=("message",), events_table="d.d"),
]


@pytest.mark.parametrize("name", ["audit_1", "audit", "log", "[x]", "x", "a.b", "aXb", "audit_\n", "orders"])
@pytest.mark.parametrize("given", [ROUTES, ROUTES[::-1], [], ROUTES[2:]], ids=["all", "turned", "none", "by action"])
def test_the_shuffler_would_send_them_there(given: Sequence[Route], name: str) -> None:
    recorded = [route.model_dump(mode="json") for route in given]
    expected = {
        next((route.events_table for route in given if route.matches("shop", name, action)), DEFAULT)
        for action in CHANGES
    }
    assert destinations(DEFAULT, recorded, "shop", name) == expected


def test_all_actions_that_make_a_table_are_looked_at() -> None:
    assert {*CHANGES} == {*routes.ACTIONS} - {"message"}
