"""Dead letters over HTTP, of the log and of a consumer: only as many are settled as the client has counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from tests.fixtures.api import Api
from tests.fixtures.small_log import SOURCE, small_log
from tests.fixtures.waiting import eventually

PARK = """
    insert into pipeline.dead_letters (id, source_id, epoch, commit_lsn, commit_idx, xid, relation_id, table_oid,
        table_schema, table_name, action, record_pk, record, committed_at, events_table, seq, cause, sqlstate)
    overriding system value
    select id, %s, 0, 300 + id, 0, 1, 1, 1, 'public', 't', 'insert', id::text, '{}', now(), 'public.sequin_events',
        id, 'no', '23514'
    from generate_series(1, 4) id
"""


@pytest.fixture
def log(database_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with small_log(database_dsn, 5) as connection:
        yield connection


@pytest.fixture
def served(api: Callable[..., Api], log: psycopg.Connection[Any]) -> Api:
    return api()


def states(served: Api) -> list[str]:
    return [each["state"] for each in served.get("/v1/dead-letters").json()["data"]]


def test_letters_of_the_log(served: Api, log: psycopg.Connection[Any]) -> None:
    assert served.get("/v1/dead-letters").json() == {"data": []}
    log.execute(PARK, [SOURCE])
    [first, *_] = served.get("/v1/dead-letters", limit=1).json()["data"]
    assert (first["id"], first["commit_lsn"], first["commit_lsn_bytes"], first["table"]) == (
        1,
        "0/12D",
        301,
        "public.t",
    )
    assert served.post("/v1/dead-letters/retry", ids=[2, 99]).json() == {"count": 1}
    refused = served.post("/v1/dead-letters/discard", through=3, count=3)
    assert (refused.status_code, refused.json()["title"]) == (
        409,
        "up to 3 there are 2 dead letters, not 3; list them again",
    )
    assert states(served) == ["parked", "retrying", "parked", "parked"]
    assert served.post("/v1/dead-letters/discard", through=3, count=2).json() == {"count": 2}
    assert served.post("/v1/dead-letters/retry").json() == {"count": 1}
    assert states(served) == ["discarded", "retrying", "discarded", "retrying"]
    assert [each["id"] for each in served.get("/v1/dead-letters", state="retrying").json()["data"]] == [2, 4]


def test_letters_of_a_consumer(served: Api, log: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "pipeline.api.logged_actions")
    body = {"name": "work", "start": "beginning", "max_deliveries": 1}
    assert served.post("/v1/consumers", **body).status_code == 201
    log.execute(
        "insert into consumer_records (consumer_id, record_pk, seq, queued_seq, commit_lsn, commit_idx,"
        " source_table_oid, action, state, deliveries)"
        " select c.id, n::text, n, n, 1, 1, 16384, 'insert', 'dead', 1"
        " from pipeline.consumers c, generate_series(1, 4) n"
    )
    settle = "/v1/consumers/work/dead-letters"
    refused = served.post(f"{settle}/discard", through=3, count=2)
    assert (refused.status_code, "there are 3 dead letters, not 2" in refused.json()["title"]) == (409, True)
    assert served.post(f"{settle}/retry", through=2, count=2).json() == {"count": 2}
    assert served.post(f"{settle}/discard", through=4, count=2).json() == {"count": 2}
    assert served.post(f"{settle}/discard", through=4, count=0).json() == {"count": 0}
    assert served.post("/v1/consumers/work/receive").status_code == 200
    expected = [
        "POST /v1/consumers work: done for 127.0.0.1",
        f"POST {settle}/retry: done for 127.0.0.1",
        *[f"POST {settle}/discard: done for 127.0.0.1"] * 2,
    ]
    eventually(lambda: caplog.messages == expected)


@pytest.mark.parametrize("path", ["/v1/dead-letters/retry", "/v1/consumers/work/dead-letters/discard"])
@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"through": 1}, "give both through and count"),
        ({"count": 1}, "give both through and count"),
        ({"through": 1, "count": 1, "ids": [1], "seqs": [1]}, ""),
        ({"through": "x", "count": 1}, "through"),
    ],
)
def test_half_a_question_is_refused(served: Api, path: str, body: dict[str, Any], why: str) -> None:
    answer = served.post(path, **body)
    assert (answer.status_code, why in answer.json()["title"]) == (422, True), answer.text
    named = {"ids": [1]} if "consumers" not in path else {"seqs": [1]}
    answer = served.post(path, through=1, count=1, **named)
    assert (answer.status_code, "not both" in answer.json()["title"]) == (422, True), answer.text
