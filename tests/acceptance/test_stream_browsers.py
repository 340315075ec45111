"""Chromium, Node and Python read one stream and agree on every event, with the token and the origin checked."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import httpx
import psycopg
import pytest
from websockets.exceptions import InvalidStatus

from tests.fixtures.browsers import node, required
from tests.fixtures.server import ROOT, Serving, Shared, environment
from tests.fixtures.streaming import stream
from tests.fixtures.waiting import eventually
from tests.pages.blocks import FencedBlock, steps

pytestmark = pytest.mark.xdist_group("browsers")  # for --dist loadgroup: one server
TOKEN = "s3cret/+t?ok>en="
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
ROWS = 700
HOW_TO = (ROOT / "docs" / "how-to" / "show-in-a-browser.md").read_text()
PAGE = next(step.text for step in steps(HOW_TO) if isinstance(step, FencedBlock) and step.file == "live.html")
REPORT = """
<script>
  const told = () => [...document.querySelectorAll("li")].map((line) => line.textContent);
  const tell = () => fetch("/report", { method: "POST", body: JSON.stringify([document.title, told()]) });
  setInterval(tell, 200);
</script>
"""


class Page:
    """The page of the how-to from its own origin; `told` is what a browser made of it. `html`: its text."""

    def __init__(self) -> None:
        self.told: queue.Queue[tuple[str, list[str]]] = queue.Queue()
        self.html = PAGE
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer((page.html + REPORT).encode())

            def do_POST(self) -> None:
                title, lines = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                page.told.put((title, lines))
                self._answer(b"")

            def log_message(self, *_: object) -> None:
                return

            def _answer(self, body: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.origin = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def read(self, lines: int, timeout: float = 120) -> list[str]:
        """What the page shows once it shows this many lines."""
        while True:
            title, shown = self.told.get(timeout=timeout)
            assert title == "Changes", title
            if len(shown) >= lines:
                return shown


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    serving = Page()
    yield serving
    serving.close()


@pytest.fixture(scope="module")
def source(shared: Shared) -> Iterator[psycopg.Connection]:
    with psycopg.connect(shared.source_dsn, autocommit=True) as connection:
        connection.execute("create table t (id int primary key, text text)")
        yield connection


@pytest.fixture(scope="module")
def server(source: psycopg.Connection, shared: Shared, page: Page) -> Serving:
    started = shared.serve(api_token=TOKEN, http_origins=page.origin)
    for name in ("python", "node", "chromium"):
        body = {"name": name, "kind": "cursor", "start": "beginning"}
        answer = httpx.post(f"http://127.0.0.1:{started.port}/v1/consumers", json=body, headers=HEADERS, timeout=60)
        assert answer.status_code == 201, answer.text
    return started


@contextmanager
def chromium(url: str, profile: Path) -> Iterator[None]:
    """A headless browser at that address."""
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    command = [required("chromium", "chromium-browser", "google-chrome"), *flags, f"--user-data-dir={profile}", url]
    with (profile.with_suffix(".log")).open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def node_stream(port: int, output: Path) -> Iterator[None]:
    """Run stream.mjs."""
    settings = {"PIPELINE_URL": f"http://127.0.0.1:{port}", "PIPELINE_API_TOKEN": TOKEN}
    command = [*node(), str(Path(__file__).with_name("stream.mjs")), "node"]
    with output.open("wb") as stream_:
        process = subprocess.Popen(command, stdout=stream_, stderr=None, env={**environment({}), **settings})
    try:
        yield
    finally:
        process.kill()
        process.wait()


def test_chromium_node_and_python_read_the_same_stream(
    server: Serving, source: psycopg.Connection, page: Page, tmp_path: Path
) -> None:
    page.html = PAGE.replace("localhost:12312", f"127.0.0.1:{server.port}").replace("/live/", "/chromium/")
    url = f"{page.origin}/#{quote(TOKEN)}"
    printed = tmp_path / "node"
    source.execute("insert into t select n, 'ä' from generate_series(1, %s) n", [ROWS])
    with (
        chromium(url, tmp_path / "profile"),
        node_stream(server.port, printed),
        stream(server.port, "python", additional_headers=HEADERS) as client,
    ):
        source.execute("update t set text = 'ß' where id <= 10")
        source.execute("delete from t where id <= 5")
        client.read_to(ROWS + 15)
        events = [event for frame in client.frames for event in frame.get("data", [])]
        expected = [f"{e['seq']} {e['action']} {e['source_table_name']} {e['record_pk']}" for e in events]
        shown = page.read(len(expected))
        eventually(lambda: len(printed.read_text().splitlines()) >= len(expected))
    assert len(expected) == ROWS + 15
    assert shown == expected
    assert printed.read_text().splitlines() == expected


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Sec-WebSocket-Protocol": "pipeline.v1, bearer.d3Jvbmc"}, 401),
        ({"Origin": "http://evil.example"}, 403),
    ],
    ids=["no token", "wrong token", "wrong token of a browser", "foreign page"],
)
def test_who_may_not_is_refused_before_the_stream_begins(server: Serving, headers: dict[str, str], status: int) -> None:
    with pytest.raises(InvalidStatus) as refused, stream(server.port, "python", additional_headers=headers):
        pass
    assert refused.value.response.status_code == status
    assert "title" in json.loads(refused.value.response.body or b"{}")
