"""What the API refuses before it looks, and how it says so."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from pipeline.api import app
from pipeline.config.settings import load
from pipeline.server import served_endpoints
from tests.fixtures.api import Api, answering
from tests.fixtures.postgres import Cluster

TOKEN = "correct horse battery staple"
PROBLEM = "application/problem+json"


@pytest.fixture(scope="module")
def dsn(cluster: Cluster) -> Iterator[str]:
    with cluster.database("api", cluster.template) as dsn:
        yield dsn


@pytest.fixture(scope="module")
def closed(dsn: str) -> Iterator[Api]:
    with answering(dsn, api_token=TOKEN) as api:
        yield api


@pytest.fixture(scope="module")
def opened(dsn: str) -> Iterator[Api]:
    """Holds a records consumer `q` and a cursor `cursor`."""
    with answering(dsn, http_origins=("https://app.example",)) as api:
        api.post("/v1/consumers", name="q")
        api.post("/v1/consumers", name="cursor", kind="cursor")
        yield api


def operations() -> list[tuple[str, str]]:
    config = load(source_dsn="host=/nowhere", database_dsn="host=/nowhere")
    schema = app.create(served_endpoints.parts(config, "test")).openapi()
    return [(method, path) for path, found in schema["paths"].items() for method in found]


def title(answer: httpx.Response) -> str:
    assert answer.headers["content-type"] == PROBLEM
    assert answer.json()["status"] == answer.status_code
    return str(answer.json()["title"])


def test_every_endpoint_but_health_wants_the_token(closed: Api) -> None:
    found = operations()
    assert len(found) > 20
    for method, path in [*found, ("get", "/docs"), ("get", "/openapi.json"), ("get", "/x")]:
        require_token(closed, method, path)


def require_token(closed: Api, method: str, path: str) -> None:
    for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": TOKEN}):
        answer = closed.client.request(method, path.replace("{name}", "x"), headers=headers)
        if path in ("/healthz", "/readyz"):
            assert answer.status_code in (200, 503)
        else:
            assert answer.status_code == 401
            assert "PIPELINE_API_TOKEN" in title(answer)


def test_the_right_token(closed: Api) -> None:
    answer = closed.client.get("/v1/consumers", headers={"authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 200


def test_pages_of_listed_origins_use_the_api_by_cors(dsn: str) -> None:
    page, other = {"origin": "https://app.example"}, {"origin": "https://evil.example"}
    asks = {"access-control-request-method": "DELETE", "access-control-request-headers": "authorization"}
    with answering(dsn, api_token=TOKEN, http_origins=("https://app.example",)) as api:
        preflight = api.client.options("/v1/consumers/q", headers={**page, **asks})
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-origin"] == page["origin"]
        assert "DELETE" in preflight.headers["access-control-allow-methods"]
        assert preflight.headers["access-control-allow-headers"] == "authorization"
        for headers, status in ((page, 401), ({**page, "authorization": f"Bearer {TOKEN}"}, 200)):
            answer = api.client.get("/v1/consumers", headers=headers)
            assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (status, page["origin"])
        assert api.client.options("/v1/consumers/q", headers={**other, **asks}).status_code == 400
        refused = api.client.get("/v1/consumers", headers={**other, "authorization": f"Bearer {TOKEN}"})
        assert "access-control-allow-origin" not in refused.headers


def test_a_browser_can_open_the_docs_with_the_token_as_password(closed: Api) -> None:
    asked = closed.client.get("/docs")
    assert asked.headers["www-authenticate"].startswith("Basic ")
    assert closed.client.get("/docs", auth=("", TOKEN)).status_code == 200
    assert closed.client.get("/v1/consumers", auth=("", TOKEN)).status_code == 401


def test_the_docs_need_nothing_from_elsewhere(opened: Api) -> None:
    page = opened.get("/docs").text
    named = set(re.findall(r"""(?:src|href|url)\s*[=:]\s*["']([^"']+)""", page))
    assert {"/openapi.json", "/docs/assets/swagger-ui-bundle.js", "/docs/assets/swagger-ui.css"} <= named
    for path in named:
        assert path.startswith("/") and not path.startswith("//")
        assert opened.get(path).status_code == 200
    assert not re.findall(r"@import|url\(\s*['\"]?https?:", opened.get("/docs/assets/swagger-ui.css").text)


def test_pages_of_other_origins_change_nothing(opened: Api) -> None:
    for origin, status in (("https://evil.example", 403), ("https://app.example", 201), (opened.url, 201)):
        name = f"c{len(origin)}"
        answer = opened.client.post("/v1/consumers", json={"name": name}, headers={"origin": origin})
        assert answer.status_code == status
        opened.client.delete(f"/v1/consumers/{name}")


def test_a_strange_host_name_is_refused_while_there_is_no_token(opened: Api) -> None:
    answer = opened.client.get("/v1/consumers", headers={"host": "rebound.example"})
    assert (answer.status_code, "PIPELINE_HTTP_ORIGINS" in title(answer)) == (403, True)
    assert opened.client.get("/healthz", headers={"host": "rebound.example"}).status_code == 200


def test_large_bodies(opened: Api) -> None:
    body = b'{"name":"x", "tables":["' + b"x" * 1_000_001 + b'"]}'
    for content in (body, iter([body])):  # with its length, and in chunks
        answer = opened.client.post("/v1/consumers", content=content, headers={"content-type": "application/json"})
        assert (answer.status_code, title(answer)) == (
            413,
            "the body is larger than 1,000,000 bytes; send less at a time",
        )


def test_endless_headers(opened: Api) -> None:
    with socket.create_connection(("127.0.0.1", opened.config.http_port), timeout=10) as line:
        line.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\nx: ")
        with pytest.raises(OSError):  # it is answered, then reset
            for _ in range(1000):
                line.sendall(b"x" * 10_000)
    assert opened.get("/healthz").status_code == 200


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("", {"name": "x", "tabels": []}, "unknown field 'tabels'"),
        ("", {"name": "a b"}, "name: expected 1 to 63 of the letters"),
        ("", {"name": ".."}, "name: expected a name that can be part of a URL"),
        ("", {}, "name is missing"),
        ("", {"name": "x", "kind": "queue"}, "kind: input should be 'records' or 'cursor'"),
        ("", {"name": "x", "visibility": 0}, "visibility: input should be greater than"),
        ("", {"name": "x", "visibility": "30"}, "visibility: input should be a valid number"),
        ("", {"name": "x", "start": "yesterday"}, "start: expected `now`, `beginning`, or a seq to begin after"),
        ("", {"name": "x", "start": 99}, "start 99 is beyond the newest event, which is 0"),
        ("", {"name": "x", "start": -1}, "start: expected `now`, `beginning`, or a seq to begin after"),
        ("", {"name": "x", "start": True}, "start: input should be a valid string"),
        ("", {"name": "x", "start": 1.5}, "start: input should be a valid string"),
        ("", {"name": "x", "start": "99"}, "start 99 is beyond the newest event, which is 0"),
        ("", {"name": "x", "tables": ["orders"]}, "tables takes patterns like public.orders"),
        ("", {"name": "x", "tables": ["a." + "*" * 33]}, "tables takes patterns with at most 32 stars each"),
        ("", {"name": "x", "tables": ["a.b\0"]}, "tables.0: a text may not hold a zero byte"),
        ("", {"name": "x", "kind": "cursor", "group_by": ["a"]}, "group_by, max_deliveries and max_unacknowledged are"),
        ("", {"name": "x", "kind": "cursor", "collapse": False}, "collapse is for consumers of kind records"),
        ("", {"name": "x", "collapse": "no"}, "collapse: input should be a valid boolean"),
        ("/q/receive", {"max": 1001}, "max: input should be less than or equal to 1000"),
        ("/q/receive", {"max": 1.5}, "max: input should be a valid integer"),
        ("/q/receive", {"wait": 61}, "wait: input should be less than or equal to 60"),
        ("/q/ack", {"ack_ids": []}, "ack_ids: list should have at least 1 item"),
        ("/q/ack", {"ack_ids": ["x"]}, "ack_ids.0: input should be a valid UUID"),
        ("/q/advance", {"seq": -1}, "seq: input should be greater than or equal to 0"),
        ("/q%20/receive", {}, "name: expected 1 to 63 of the letters"),
    ],
)
def test_wrong_bodies_are_named(opened: Api, path: str, body: dict[str, Any], said: str) -> None:
    answer = opened.post(f"/v1/consumers{path}", **body)
    assert answer.status_code == 422
    assert title(answer).startswith(said)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "the body is not JSON"),
        ("", "the body is missing; send JSON"),
        ("[]", "body: input should be a valid dictionary"),
        ("\0", "the body is not JSON"),
        pytest.param("[" * 100_000, "the body is not JSON", id="too deep"),
        pytest.param('{"name": ' + "[" * 900 + "]" * 900 + "}", "name: input should be a valid string", id="deep"),
    ],
)
def test_bodies_that_are_no_object(opened: Api, content: str, said: str) -> None:
    answer = opened.client.post("/v1/consumers", content=content, headers={"content-type": "application/json"})
    assert answer.status_code == 422
    assert title(answer).startswith(said)


@pytest.mark.parametrize(
    ("method", "path", "status", "said"),
    [
        ("GET", "/v1/consumers/missing", 404, 'consumer "missing" does not exist'),
        ("DELETE", "/v1/consumers/missing", 404, "there is no consumer 'missing'; GET /v1/consumers lists all"),
        ("POST", "/v1/consumers/missing/reset", 404, "there is no consumer 'missing'; GET /v1/consumers lists all"),
        ("POST", "/v1/consumers/missing/receive", 404, "there is no consumer 'missing'"),
        ("POST", "/v1/consumers/cursor/receive", 409, "consumer 'cursor' is of kind cursor"),
        ("GET", "/v1/consumers/cursor/dead-letters", 409, "consumer 'cursor' is of kind cursor"),
        ("GET", "/v2", 404, "unknown path"),
        ("PUT", "/v1/consumers", 405, "this path does not support that method"),
    ],
)
def test_what_is_not_there(opened: Api, method: str, path: str, status: int, said: str) -> None:
    answer = opened.client.request(method, path)
    assert answer.status_code == status
    assert title(answer).startswith(said)


def test_a_name_that_is_taken(opened: Api) -> None:
    answer = opened.post("/v1/consumers", name="q")
    assert (answer.status_code, title(answer)[:33]) == (409, "there is a consumer 'q' already; ")


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ("limit=0", "limit: input should be greater than or equal to 1"),
        ("limit=1001", "limit: input should be less than or equal to 1000"),
        ("after=-1", "after: input should be"),
        ("after=x", "after: input should be a valid integer"),
        ("after=99999999999999999999", "after: input should be less than"),
        ("wait=61", "wait: input should be less than or equal to 60"),
        ("wait=nan", "wait: "),
        ("tables=orders", "tables: "),
        ("tables=a.b,", "tables: "),
        ("consumer=a%20b", "consumer: "),
    ],
)
def test_wrong_parameters_are_named(opened: Api, parameters: str, said: str) -> None:
    answer = opened.client.get(f"/v1/events?{parameters}")
    assert answer.status_code == 422
    assert answer.json()["title"].startswith(said)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("consumers", r'{"name": "x", "tables": ["public.\ud800"]}'),
        ("consumers", r'{"name": "x", "events_table": "public.\udfff"}'),
        ("consumers", r'{"name": "x", "\ud800": 1}'),
        ("backfills", r'{"table": "public.\ud800"}'),
        ("backfills", r'{"table": "public.x", "where": [{"column": "\ud800", "operator": "=", "value": 1}]}'),
        ("backfills", r'{"table": "public.x", "where": [{"column": "x", "operator": "=", "value": "\ud800"}]}'),
        ("backfills", r'{"table": "public.x", "where": [{"column": "x", "operator": "in", "value": ["\ud800"]}]}'),
    ],
)
def test_half_of_a_surrogate_pair_is_named(opened: Api, path: str, body: str) -> None:
    headers = {"content-type": "application/json"}
    answer = opened.client.post(f"/v1/{path}", content=body.encode(), headers=headers)
    assert answer.status_code == 400
    assert "a text may not hold half of a surrogate pair" in title(answer)
