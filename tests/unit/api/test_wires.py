"""Wires: on the paths of one that is served errors have its form, and the token, host and origin rules hold."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI, HTTPException, Request, Response
from fastapi.responses import PlainTextResponse

from pipeline.api import problems
from pipeline.api.access_guard import MAX_BODY, RequestGuard
from pipeline.api.wire import ErrorAnswer, ServedWires, WirePath, WireProtocol, WireResources
from pipeline.config.settings import Config, load
from pipeline.errors import DatabaseUnavailableError

TOKEN = {"authorization": "Bearer secret"}
INSIDE, OUTSIDE = "/old/{name}/take", "/new/{name}/take"
PROBLEM = "application/problem+json"


class Old:
    """A service of the test's own."""

    def __init__(self, _: WireResources | None = None) -> None:
        self.routes = APIRouter()
        for method in ("GET", "POST"):
            self.routes.add_api_route(INSIDE, self.take, methods=[method], include_in_schema=False)
            self.routes.add_api_route(OUTSIDE, self.take, methods=[method], operation_id=method)

    async def take(self, name: str, request: Request, number: int = 1) -> Response:
        await request.body()
        match name:
            case "away":
                raise DatabaseUnavailableError("it does not answer")
            case "broken":
                raise KeyError("a value")
            case "refused":
                raise HTTPException(409, "it is held")
        return PlainTextResponse(f"took {number}")

    async def close(self) -> None:
        """Nothing waits."""


WIRE = WireProtocol(
    name="old",
    paths=(WirePath("/old/{name}/take", get_changes=True), WirePath("/old/{rest:path}")),
    forms={404: lambda failure: PlainTextResponse("nothing here", failure.status)},
    otherwise=lambda failure: PlainTextResponse(
        json.dumps({"summary": failure.sentence}), failure.status, dict(failure.headers)
    ),
    serve=Old,
)


def application(config: Config, *, served: bool = True, is_open: bool = False) -> FastAPI:
    app = FastAPI(redirect_slashes=False)
    app.state.wires = ServedWires([WIRE] if served else [], [WIRE.name] if is_open else [])
    app.add_middleware(RequestGuard, config=config, wires=app.state.wires)
    problems.install(app)
    if served:
        app.include_router(Old().routes)
    return app


def ask(app: FastAPI, method: str, path: str, host: str = "127.0.0.1", **options: Any) -> httpx.Response:
    async def asked() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as client:
            return await client.request(method, path, **options)

    return asyncio.run(asked())


@pytest.mark.parametrize(
    ("method", "path", "status", "said"),
    [
        ("GET", "take?number=x", 422, "number: input should be a valid integer"),
        ("DELETE", "take", 405, "this path does not support that method"),
        ("GET", "away", 503, "it does not answer"),
        ("GET", "broken", 500, problems.UNEXPECTED),
        ("GET", "refused", 409, "it is held"),
        ("POST", "large", 413, "the body is larger than 1,000,000 bytes"),
        ("GET", "foreign", 403, "a web page of another origin may not send this request"),
    ],
)
def test_an_error_has_the_form_of_its_wire_and_is_a_problem_elsewhere(
    method: str, path: str, status: int, said: str
) -> None:
    app = application(load(), served=True)
    name, _, query = path.partition("?")
    body: dict[str, Any] = {"content": b"x" * (MAX_BODY + 1)} if name == "large" else {}
    origin = {"origin": "https://evil.example"} if name == "foreign" else {}
    for place, kind in ((INSIDE, "text/plain; charset=utf-8"), (OUTSIDE, PROBLEM)):
        if kind == PROBLEM and name == "foreign":
            method = "POST"  # nothing else says of its GET that it changes something
        answer = ask(app, method, f"{place.replace('{name}', name)}?{query}", headers=origin, **body)
        assert (answer.status_code, answer.headers["content-type"]) == (status, kind)
        assert answer.json()["title" if kind == PROBLEM else "summary"].startswith(said)
        assert (answer.headers.get("retry-after") == "5") is (status == 503)


def test_the_table_decides_on_a_status_of_its_own() -> None:
    inside, outside = (ask(application(load()), "GET", path) for path in ("/old/x/y", "/x"))
    assert (inside.status_code, inside.text) == (404, "nothing here")
    assert (outside.status_code, outside.headers["content-type"]) == (404, PROBLEM)


def test_a_wire_that_is_not_served_does_not_exist() -> None:
    app = application(load(), served=False)
    unknown, old = (ask(app, "GET", path) for path in ("/x", "/old/a/take"))
    assert (old.status_code, old.content) == (unknown.status_code, unknown.content)
    assert old.headers["content-type"] == unknown.headers["content-type"] == PROBLEM


def test_the_token_holds_unless_the_wire_is_open() -> None:
    config = load(api_token="secret")
    refused = ask(application(config), "GET", "/old/a/take")
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    assert "PIPELINE_API_TOKEN" in refused.json()["summary"]
    assert ask(application(config), "GET", "/old/a/take", headers=TOKEN).text == "took 1"
    opened = application(config, is_open=True)
    assert ask(opened, "GET", "/old/a/take").text == "took 1"
    assert ask(opened, "GET", "/old/a/take", headers={"authorization": "Bearer wrong"}).text == "took 1"
    assert ask(opened, "GET", "/new/a/take").status_code == 401


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("127.0.0.1:12312", True),
        ("localhost:12312", True),
        ("192.0.2.7:12312", True),
        ("[2001:db8::7]:12312", True),
        ("app.example", True),
        ("rebound.example:12312", False),
        ("192.0.2.7.rebound.example", False),
    ],
)
def test_a_page_cannot_make_its_own_name_lead_to_an_open_wire(host: str, allowed: bool) -> None:
    config = load(api_token="secret", http_origins="https://app.example")
    opened = application(config, is_open=True)
    answer = ask(opened, "POST", "/old/a/take", headers={"host": host})
    assert (answer.status_code, "PIPELINE_HTTP_ORIGINS" in answer.text) == ((200, False) if allowed else (403, True))
    assert ask(opened, "POST", "/old/a/take", headers={"host": host, **TOKEN}).status_code == 200
    assert ask(application(config), "POST", "/old/a/take", headers={"host": host, **TOKEN}).status_code == 200


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({}, True),
        ({"sec-fetch-site": "none"}, True),
        ({"sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "same-origin", "origin": "http://127.0.0.1"}, True),
        ({"sec-fetch-site": "same-site"}, False),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"sec-fetch-site": "Cross-Site", "origin": "http://127.0.0.1"}, False),
        ({"origin": "https://evil.example"}, False),
        ({"origin": "null"}, False),
        ({"sec-fetch-site": "none", "origin": "https://evil.example"}, False),
        ({"sec-fetch-site": "cross-site", "origin": "https://App.example"}, True),
        ({"origin": "https://app.example"}, True),
    ],
)
def test_a_page_of_another_origin_sends_no_get_that_changes_something(headers: dict[str, str], allowed: bool) -> None:
    app = application(load(http_origins="https://app.example"))
    assert ask(app, "GET", "/old/a/take", headers=headers).status_code == (200 if allowed else 403)
    assert ask(app, "GET", "/new/a/take", headers=headers).status_code == 200


def test_what_is_refused_to_a_handshake_says_so() -> None:
    said: list[ErrorAnswer] = []
    wire = WireProtocol("w", (WirePath("/w"),), {}, lambda failure: said.append(failure) or Response(), Old)  # type: ignore[func-returns-value]
    guard = RequestGuard(PlainTextResponse("reached"), load(api_token="secret"), ServedWires([wire]))

    async def shake(headers: list[tuple[bytes, bytes]]) -> None:
        async def receive() -> dict[str, Any]:
            return {"type": "websocket.connect"}

        async def send(_message: Any) -> None:
            """It goes nowhere."""

        await guard({"type": "websocket", "path": "/w", "headers": headers}, receive, send)

    asyncio.run(shake([(b"host", b"x")]))
    asyncio.run(shake([(b"host", b"x"), (b"origin", b"https://evil.example")]))
    assert [(failure.status, failure.handshake) for failure in said] == [(401, True), (403, True)]
    assert "subprotocols" in said[0].sentence


def test_only_the_role_of_the_api_loads_fastapi() -> None:
    code = (
        "import sys; from importlib import import_module; from pipeline.server.runners import NEEDS;"
        "import pipeline.server.serve, pipeline.operate.status, pipeline.operate.repair.adopt;"
        "load = lambda roles: [import_module(name) for role in roles for name in NEEDS[role]];"
        "load(NEEDS.keys() - {'api'}); assert 'fastapi' not in sys.modules;"
        "load({'api'}); assert 'fastapi' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[3], check=True)
