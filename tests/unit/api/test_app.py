"""What the application has ready before its first request."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute, iter_route_contexts
from pydantic import TypeAdapter

from pipeline.api.app import create
from pipeline.config.settings import load
from pipeline.server import served_endpoints


@pytest.fixture
def app() -> FastAPI:
    config = load(source_dsn="host=/nowhere", database_dsn="host=/nowhere")
    return create(served_endpoints.parts(config, "test"))


def asked(app: FastAPI, method: str, url: str) -> httpx.Response:
    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            return await client.request(method, url)

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("method", "url", "status"),
    [
        ("GET", "/v1/backfills?state=x", 422),
        ("GET", "/v1/consumers?x=1", 422),
        ("PUT", "/v1/events", 405),
        ("GET", "/v1/nothing", 404),
    ],
)
def test_no_request_makes_models(
    app: FastAPI, monkeypatch: pytest.MonkeyPatch, method: str, url: str, status: int
) -> None:
    def made(*_: object, **__: object) -> None:
        raise AssertionError("two first requests at once would make it in two threads")

    monkeypatch.setattr(TypeAdapter, "__init__", made)
    assert asked(app, method, url).status_code == status


def test_the_description_is_made_when_it_is_asked_for_by_one_thread(
    app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads, make = set[int](), TypeAdapter.__init__

    def made(*given: Any, **options: Any) -> None:
        threads.add(threading.get_ident())
        make(*given, **options)

    monkeypatch.setattr(TypeAdapter, "__init__", made)
    assert "/v1/events" in asked(app, "GET", "/openapi.json").json()["paths"]
    assert threads == {threading.get_ident()}, "that of the event loop"
    threads.clear()
    asked(app, "GET", "/openapi.json")
    assert threads == set()


def test_no_coroutine_waits_for_a_dependency_in_a_thread(app: FastAPI) -> None:
    def called(dependant: Dependant) -> Iterator[Dependant]:
        yield dependant
        for each in dependant.dependencies:
            yield from called(each)

    routes = [each.original_route for each in iter_route_contexts(app.routes)]
    coroutines = [each for each in routes if isinstance(each, APIRoute) and inspect.iscoroutinefunction(each.endpoint)]
    assert {"/healthz", "/v1/events", "/v1/consumers"} <= {each.path for each in coroutines}
    threads = {
        (route.path, each.call)
        for route in coroutines
        for each in called(route.dependant)
        if not (inspect.iscoroutinefunction(each.call) or inspect.isasyncgenfunction(each.call))
        if each.call is not None
    }
    assert not threads
