"""The same in Node, by its own fetch and WebSocket: checks.mjs runs once, and each of its checks is a test here."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.fixtures.browsers import node, required
from tests.fixtures.postgres import bin_dir
from tests.fixtures.wire_place import Place

pytestmark = pytest.mark.xdist_group("pgdeltastream")
PROGRAM = Path(__file__).with_name("checks.mjs")
NAMES = re.findall(r'^check\("(.*?)"', PROGRAM.read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def results(place: Place) -> dict[str, str | None]:
    """What went wrong, by check; None where nothing did."""
    url = f"http://127.0.0.1:{place.server.port}"
    command = [*node(), "--no-warnings", str(PROGRAM), url, _psql(), place.source_dsn]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return {found["name"]: found["error"] for found in map(json.loads, done.stdout.splitlines())}


def _psql() -> str:
    folder = bin_dir(18)
    return str(folder / "psql") if folder and (folder / "psql").is_file() else required("psql")


@pytest.mark.parametrize("name", NAMES)
def test_in_node(results: dict[str, str | None], name: str) -> None:
    assert results[name] is None, results[name]
