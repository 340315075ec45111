"""What the application has ready before its first request."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from pydantic import TypeAdapter

from pipeline.api.app import create
from pipeline.config.settings import load


@pytest.mark.parametrize(
    ("method", "url", "status"),
    [
        ("GET", "/openapi.json", 200),
        ("GET", "/v1/backfills?state=x", 422),
        ("GET", "/v1/consumers?x=1", 422),
        ("PUT", "/v1/events", 405),
        ("GET", "/v1/nothing", 404),
    ],
)
def test_no_request_makes_models(monkeypatch: pytest.MonkeyPatch, method: str, url: str, status: int) -> None:
    app = create(load(source_dsn="host=/nowhere", database_dsn="host=/nowhere"), "test")

    async def asked() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            return await client.request(method, url)

    def made(*_: object, **__: object) -> None:
        raise AssertionError("two first requests at once would make it in two threads")

    monkeypatch.setattr(TypeAdapter, "__init__", made)
    assert asyncio.run(asked()).status_code == status
