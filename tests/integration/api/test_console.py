"""The page of the console and its files: their headers, addresses and size; its login, and the read token."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hatchling.builders.wheel import WheelBuilder

from pipeline.api import access_sessions
from pipeline.api.console import endpoints
from pipeline.config.settings import load
from pipeline.errors import ConfigError
from tests.fixtures.api import Api

ROOT = Path(__file__).parents[3]
STATIC = ROOT / "pipeline" / "api" / "console" / "static"
FILES = sorted(path.name for path in STATIC.iterdir())
TOKEN, READER = "token-ä", "reader"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; form-action 'none'; base-uri 'none'"
)


@pytest.fixture
def opened(api: Callable[..., Api]) -> Api:
    return api()


def test_the_page_and_its_files_have_strict_headers(opened: Api) -> None:
    for name in ("", *FILES):
        answer = opened.get(f"/console/{name}")
        assert (answer.status_code, answer.headers["content-security-policy"]) == (200, POLICY)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
    assert opened.get("/console/main.js").headers["content-type"].startswith("text/javascript")
    assert opened.get("/console/").headers["content-type"].startswith("text/html")


def test_other_addresses_lead_to_the_page(opened: Api) -> None:
    for path in ("/", "/console"):
        answer = opened.get(path)
        assert (answer.status_code, answer.headers["location"]) == (307, "console/")


@pytest.mark.parametrize("path", ["x.js", "endpoints.py", "..%2fendpoints.py", "%2e%2e/endpoints.py", "static"])
def test_unknown_files_are_not_found(opened: Api, path: str) -> None:
    assert opened.get(f"/console/{path}").status_code == 404


def test_the_files_are_small_and_name_no_other_host() -> None:
    texts = {name: (STATIC / name).read_text("utf-8") for name in FILES}
    assert sum(len(text.encode()) for text in texts.values()) <= 70_000
    for name, text in texts.items():
        assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)", text) == [], name
        assert not re.search(r"innerHTML|insertAdjacentHTML|\beval\(|\sstyle=|<script>|\son\w+=\"", text), name
    imported = {found for text in texts.values() for found in re.findall(r'from "\./([\w.]+)"', text)}
    assert imported | {"main.js"} == {name for name in FILES if name.endswith(".js")}


def test_the_wheel_has_every_file_of_the_page() -> None:
    wheel = {each.distribution_path for each in WheelBuilder(str(ROOT)).recurse_included_files()}
    assert {f"pipeline/api/console/static/{name}" for name in FILES} <= wheel
    assert endpoints.HEADERS["Content-Security-Policy"] == POLICY


def session(api: Api, token: str) -> dict[str, str]:
    answer = api.post("/v1/console/session", token=token)
    assert answer.status_code == 200, answer.text
    return {"pipeline-session": answer.json()["session"]}


@pytest.fixture
def closed(api: Callable[..., Api]) -> Api:
    return api(api_token=TOKEN, read_token=READER)


def test_the_page_needs_no_token_and_its_reads_do(closed: Api) -> None:
    for path, status in (("/", 307), ("/console/", 200), ("/console/main.js", 200), ("/v1/consumers", 401)):
        assert closed.get(path).status_code == status, path
    assert closed.post("/console/").status_code == 401


def test_a_session_has_the_rights_of_its_token(closed: Api) -> None:
    for token, status in ((TOKEN, 201), (READER, 403)):
        headers = session(closed, token)
        assert closed.client.get("/v1/consumers", headers=headers).status_code == 200
        assert closed.client.get("/v1/consumers", headers=headers).headers["cache-control"] == "no-store"
        made = closed.client.post("/v1/consumers", json={"name": f"c{status}"}, headers=headers)
        assert made.status_code == status
        assert closed.client.get("/docs", headers=headers).status_code == 401
        assert closed.client.get("/metrics", headers=headers).status_code == 401
    assert "PIPELINE_READ_TOKEN may only read" in made.json()["title"]


def test_the_read_token_serves_reads_and_metrics_only(closed: Api) -> None:
    headers = {"authorization": f"Bearer {READER}"}
    asked = [("GET", "/v1/consumers", 200), ("GET", "/metrics", 200), ("GET", "/openapi.json", 403)]
    asked += [("POST", "/v1/consumers", 403), ("DELETE", "/v1/consumers/x", 403), ("GET", "/docs", 403)]
    for method, path, status in asked:
        assert closed.client.request(method, path, headers=headers).status_code == status, path


def test_an_old_or_changed_session_is_refused(closed: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    headers = session(closed, TOKEN)
    for value in ("", "1", headers["pipeline-session"] + "x", access_sessions.create_session("another")):
        assert closed.client.get("/v1/consumers", headers={"pipeline-session": value}).status_code == 401
    monkeypatch.setattr(access_sessions, "SESSION_SECONDS", -1)
    assert closed.client.get("/v1/consumers", headers=headers).status_code == 401


def test_a_wrong_token_is_logged_at_most_ten_times_a_minute(
    closed: Api, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoints, "_logged", deque(maxlen=10))
    for _ in range(12):
        assert closed.post("/v1/console/session", token="wrong").status_code == 401
    lines = [each.getMessage() for each in caplog.records if "wrong token" in each.getMessage()]
    assert lines == ["wrong token in the console's login, from 127.0.0.1"] * 10
    assert session(closed, TOKEN)


def test_a_page_of_another_origin_cannot_log_in(closed: Api, api: Callable[..., Api]) -> None:
    body, page = {"token": TOKEN}, {"origin": "https://evil.example"}
    assert closed.client.post("/v1/console/session", json=body, headers=page).status_code == 403
    assert api().post("/v1/console/session", token="x").status_code == 409


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"read_token": "r"}, "PIPELINE_READ_TOKEN is set without PIPELINE_API_TOKEN"),
        ({"read_token": "r", "api_token": "r"}, "PIPELINE_READ_TOKEN is equal to PIPELINE_API_TOKEN"),
    ],
)
def test_a_read_token_alone_or_equal_to_the_other_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load(**settings)
