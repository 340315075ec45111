"""/v1/backfills: begun by terms, listed, shown, changed; what is refused, and with which status."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.fixtures.api import Api
from tests.fixtures.captured import Captured, captured
from tests.fixtures.waiting import eventually


@pytest.fixture
def known(source_dsn: str, database_dsn: str) -> Iterator[Captured]:
    with captured(source_dsn, database_dsn) as found:
        yield found


@pytest.fixture
def served(known: Captured, api: Callable[..., Api], source_dsn: str) -> Api:
    return api(source_dsn=source_dsn)


def term(column: str, operator: str, value: Any = None) -> dict[str, Any]:
    return {"column": column, "operator": operator, "value": value}


def test_from_its_beginning_to_its_end(served: Api) -> None:
    where = [term("id", ">=", 5), term("state", "in", ["x", "y"]), term("state", "is not null")]
    begun = served.post("/v1/backfills", table="public.orders", where=where)
    assert begun.status_code == 201, begun.text
    path = begun.headers["Location"]
    shown = served.get(path).json()
    assert shown == begun.json()
    assert (shown["state"], shown["table"]) == ("waiting", "public.orders")
    assert shown["condition"] == "id >= '5' and state in ('x', 'y') and state is not null"
    assert served.post(f"{path}/resume").status_code == 409
    assert served.post(f"{path}/pause").json()["state"] == "paused"
    assert served.post(f"{path}/resume").json()["state"] == "waiting"
    assert served.post(f"{path}/cancel").json()["state"] == "cancelled"
    assert served.post("/v1/backfills", table="Odd name").status_code == 201
    assert [each["state"] for each in served.get("/v1/backfills").json()["data"]] == ["waiting", "cancelled"]
    assert len(served.get("/v1/backfills", limit=1).json()["data"]) == 1


def test_of_two_of_one_table_the_second_is_refused(served: Api) -> None:
    begun = served.post("/v1/backfills", table="orders", where=[term("id", ">", 5)]).json()["id"]
    for body in ({}, {"where": [term("id", "<", 5)]}, {"differences": True}):
        refused = served.post("/v1/backfills", table="public.orders", **body)
        assert refused.status_code == 409, refused.text
        said = f"backfill {begun} of public.orders is waiting; wait for its end, or cancel it"
        assert refused.json()["title"] == said
    assert [each["id"] for each in served.get("/v1/backfills").json()["data"]] == [begun]


def test_of_two_at_the_same_instant_one_is_begun(served: Api) -> None:
    together = threading.Barrier(2)
    whole: list[dict[str, Any]] = []
    part = [term("id", ">", 5)]

    def begin(where: list[dict[str, Any]]) -> httpx.Response:
        together.wait()
        return served.post("/v1/backfills", table="orders", where=where)

    with ThreadPoolExecutor(2) as pool:
        for both in ([whole, whole], [whole, part], [part, part]):
            one, other = sorted(pool.map(begin, both), key=lambda answer: answer.status_code)
            assert (one.status_code, other.status_code) == (201, 409), (one.text, other.text)
            number = one.json()["id"]
            assert f"backfill {number} of public.orders is waiting" in other.json()["title"]
            assert served.post(f"/v1/backfills/{number}/cancel").status_code == 200
    assert [each["state"] for each in served.get("/v1/backfills").json()["data"]] == 3 * ["cancelled"]


def test_what_is_refused(served: Api) -> None:
    for body, status, said in (
        ({}, 422, "table is missing"),
        ({"table": "orders", "where": "id > 5"}, 422, "where: "),
        ({"table": "orders", "condition": "id > 5"}, 422, "unknown field 'condition'"),
        ({"table": "orders", "where": [term("id", "or", 1)]}, 422, "where.0.operator"),
        ({"table": "orders", "where": [term("id", "=", "abc")]}, 422, "the source does not take that condition"),
        ({"table": "orders", "where": [term("nothing", "=", 1)]}, 422, "the table has no column nothing"),
        ({"table": "orders", "where": [term("id", "=")]}, 422, "takes no null: use is null"),
        ({"table": "shown"}, 422, "public.shown is a view"),
        ({"table": "nowhere"}, 422, "the source has no table nowhere"),
    ):
        answer = served.post("/v1/backfills", **body)
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), answer.text
        assert said in answer.json()["title"]
    for path in ("", "/pause", "/resume", "/cancel"):
        answer = served.post(f"/v1/backfills/7{path}") if path else served.get("/v1/backfills/7")
        assert (answer.status_code, answer.json()["title"][:23]) == (404, "there is no backfill 7;")
    assert served.get("/v1/backfills/0").status_code == 422
    assert served.get("/v1/backfills", state="x").json()["title"].startswith("unknown parameter 'state'")
    assert served.get("/v1/backfills").json() == {"data": []}


def test_a_source_that_does_not_answer_and_a_token(known: Captured, api: Callable[..., Api]) -> None:
    away = api(api_token="secret")
    assert away.get("/v1/backfills").status_code == 401
    away.client.headers["authorization"] = "Bearer secret"
    assert away.get("/v1/backfills").json() == {"data": []}
    answer = away.post("/v1/backfills", table="orders")
    assert (answer.status_code, "source" in answer.json()["title"]) == (503, True)
    assert "Retry-After" in answer.headers


def test_metrics_have_them(served: Api) -> None:
    number = served.post("/v1/backfills", table="orders").json()["id"]
    text = served.get("/metrics").text
    for name in ("ranges_done", "ranges", "rows"):
        assert f'pipeline_backfill_{name}{{backfill="{number}",kind="asked",table="public.orders"}} 0.0\n' in text
    assert 'pipeline_snapshot_tables{state="not read"} 2.0\n' in text
    assert 'pipeline_snapshot_tables{state="waiting"} 1.0\n' in text
    served.post(f"/v1/backfills/{number}/cancel")
    eventually(lambda: "pipeline_backfill_" not in served.get("/metrics").text)  # an answer is shared for 2 s


def test_differences_are_of_a_whole_table_with_a_key(served: Api) -> None:
    terms = [{"column": "id", "operator": ">", "value": 1}]
    refused = served.post("/v1/backfills", table="orders", differences=True, where=terms)
    assert (refused.status_code, "leave the condition out" in refused.json()["title"]) == (422, True)
    found = served.post("/v1/backfills", table="orders", differences=True).json()
    assert (found["kind"], found["state"]) == ("differences", "waiting")
