"""Tokens, origins and host names, without a server."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from pipeline.api import access
from pipeline.config.settings import load
from pipeline.errors import ConfigError

OPEN = load(http_origins="https://app.example,http://localhost:3000")
CLOSED = load(api_token="s3cret-ä")


def encoded(token: str) -> str:
    return base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    ("headers", "token"),
    [
        ({}, None),
        ({"authorization": "Bearer abc"}, "abc"),
        ({"authorization": "bearer  abc "}, "abc"),
        ({"authorization": "Basic eDphYmM="}, None),
        ({"sec-websocket-protocol": f"pipeline.v1, bearer.{encoded('a+b/c?ä')}"}, "a+b/c?ä"),
        ({"sec-websocket-protocol": "pipeline.v1"}, None),
        ({"sec-websocket-protocol": "bearer.***"}, None),
    ],
)
def test_where_a_token_may_be(headers: dict[str, str], token: str | None) -> None:
    assert access.given_token(headers) == token


def test_a_browsers_own_dialog_sends_the_token_as_a_password() -> None:
    given = base64.b64encode(b"anybody:abc:d").decode()
    assert access.given_token({"authorization": f"Basic {given}"}, basic=True) == "abc:d"


@pytest.mark.parametrize(("given", "right"), [(None, False), ("", False), ("s3cret", False), ("s3cret-ä", True)])
def test_the_token(given: str | None, right: bool) -> None:
    assert access.is_token_valid(given, CLOSED) is right
    assert access.is_token_valid(given, OPEN)


@pytest.mark.parametrize(
    ("origin", "host", "allowed"),
    [
        (None, "x", True),
        ("http://127.0.0.1:12312", "127.0.0.1:12312", True),
        ("https://pipeline.example", "pipeline.example:443", True),
        ("https://APP.example", "127.0.0.1:12312", True),
        ("http://localhost:3000", "127.0.0.1:12312", True),
        ("http://localhost:3001", "127.0.0.1:12312", False),
        ("https://app.example.evil", "127.0.0.1:12312", False),
        ("http://evil", "127.0.0.1:12312", False),
        ("null", "null", False),
        ("", "", False),
        ("file://", "", False),
        ("http://", "", False),
    ],
)
def test_which_pages_may(origin: str | None, host: str, allowed: bool) -> None:
    headers = {"host": host} if origin is None else {"host": host, "origin": origin}
    assert access.origin_allowed(headers, OPEN) is allowed


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("127.0.0.1:12312", True),
        ("[::1]:12312", True),
        ("localhost", True),
        ("app.example", True),
        ("rebound.example:12312", False),
        ("", False),
        ("[", False),
    ],
)
def test_a_page_cannot_make_its_own_name_lead_here(host: str, allowed: bool) -> None:
    assert access.host_allowed({"host": host}, OPEN) is allowed
    assert access.host_allowed({"host": host}, CLOSED)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"http_certificate": "c.pem"}, "PIPELINE_HTTP_CERTIFICATE is set without PIPELINE_HTTP_KEY"),
        ({"http_key": "k.pem"}, "PIPELINE_HTTP_KEY is set without PIPELINE_HTTP_CERTIFICATE"),
        ({"http_origins": "app.example"}, "PIPELINE_HTTP_ORIGINS: expected https://host or http://host:port"),
        ({"http_origins": "*"}, "PIPELINE_HTTP_ORIGINS"),
        ({"http_origins": "https://a.example/x"}, "without a path"),
    ],
)
def test_settings_that_are_wrong(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace("*", r"\*")):
        load(**settings)


def test_origins_are_a_list() -> None:
    assert load(http_origins="https://A.example, http://b:1 ").http_origins == ("https://a.example", "http://b:1")


def test_a_blank_token_is_none() -> None:
    with pytest.raises(ConfigError, match="set PIPELINE_API_TOKEN"):
        load(api_token=" ", http_host="0.0.0.0")  # noqa: S104
