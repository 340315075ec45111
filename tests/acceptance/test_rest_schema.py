"""Schemathesis over the running server: no 5xx, and every answer is as /openapi.json says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import psycopg
import pytest

from tests.fixtures.server import ROOT, Serving
from tests.fixtures.waiting import eventually

TOKEN = "schemathesis"
EXCLUDED = "positive_data_acceptance"
"""What only the database can know, such as a seq beyond the newest, is no part of a schema."""


@pytest.mark.parametrize("seconds", [2, pytest.param(300, marks=[pytest.mark.long, pytest.mark.timeout(600)])])
def test_every_answer_is_as_described(
    serve: Callable[..., Serving], source_dsn: str, tmp_path: Path, seconds: int
) -> None:
    with psycopg.connect(source_dsn, autocommit=True) as source:
        source.execute("create table orders (id int primary key, n numeric, t text)")
        server = serve(api_token=TOKEN)
        for consumer in ({"name": "q", "max_deliveries": 1}, {"name": "c", "kind": "cursor"}):
            assert ask(server, "POST", "/v1/consumers", json=consumer).status_code == 201
        source.execute("insert into orders select id, 0.1, 'x' from generate_series(1, 500) id")
    eventually(lambda: ask(server, "GET", "/v1/consumers/q").json()["pending"] == 500)
    done = schemathesis(server, seconds, tmp_path)
    assert done.returncode == 0, done.stdout
    assert "api.failed" not in server.log()
    assert "Traceback" not in server.log()
    assert ask(server, "GET", "/v1/events?limit=1").status_code == 200


def ask(server: Serving, method: str, path: str, **more: object) -> httpx.Response:
    headers = {"authorization": f"Bearer {TOKEN}"}
    where = f"http://127.0.0.1:{server.port}{path}"
    return httpx.request(method, where, headers=headers, timeout=60, **more)  # type: ignore[arg-type]


def schemathesis(server: Serving, seconds: int, folder: Path) -> subprocess.CompletedProcess[str]:
    where = f"http://127.0.0.1:{server.port}/openapi.json"
    options = [
        *("--header", f"Authorization: Bearer {TOKEN}"),
        *("--max-time", str(seconds)),
        *("--workers", "1"),  # more are threads, with which ast.parse of Python 3.11 fails at times
        *("--request-timeout", "70"),
        *("--exclude-checks", EXCLUDED),
        *("--generation-database", "none"),
        *("--report-dir", str(folder)),
        "--no-color",
    ]
    command = [sys.executable, "-m", "schemathesis.cli", "run", where, *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SCHEMATHESIS_HOOKS": "tests.fixtures.short_waits"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds + 200, check=False
    )
