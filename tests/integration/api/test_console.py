"""The page of the console and its files: their headers, addresses and size."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from pipeline.api.console import endpoints
from tests.fixtures.api import Api

ROOT = Path(__file__).parents[3]
STATIC = ROOT / "pipeline" / "api" / "console" / "static"
FILES = sorted(path.name for path in STATIC.iterdir())
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
