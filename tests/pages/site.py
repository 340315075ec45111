"""The site of `make docs` in Chromium, which `make docs-test` runs: it stands alone, fits a phone, and is searched.

Pytest does not find this file by itself, because the site must have been built before.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from websockets.sync.client import ClientConnection, connect

from tests.fixtures.browsers import required
from tests.fixtures.waiting import eventually

SITE = Path(__file__).parents[2] / "build" / "site"
FIRST = "index.html"
"""The page that leads to the index of the docs."""
PAGES = sorted(path.relative_to(SITE).as_posix() for path in SITE.glob("**/*.html"))
PAGES = [page for page in PAGES if page != FIRST and not page.startswith("_downloads/")]
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-port=0")
WIDTHS = {"light": 1280, "dark": 390}
"""The width of the window in pixels, by color scheme: a screen in light, a phone in dark."""
LINKS = "[...document.querySelectorAll('a, img, link, script')].map((each) => each.href || each.src)"
ANCHORS = "[...document.querySelectorAll('[id]')].map((each) => each.id)"
SIDEWAYS = "[...document.querySelectorAll('html, .content')].map((each) => each.scrollWidth - each.clientWidth)"
RESULTS = "[...document.querySelectorAll('#search-results li a')].map((each) => each.href).join(' ')"


class BrowserTab:
    """A tab of Chromium, driven by its DevTools protocol. `events` has all that it reported since the last page."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._asked = 0
        self._session: dict[str, str] = {}
        self._events: list[dict[str, Any]] = []
        target = self.ask("Target.createTarget", url="about:blank")
        attached = self.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **params: object) -> Any:
        """Call a method of the protocol, and return its result."""
        self._asked += 1
        self._connection.send(json.dumps({"id": self._asked, "method": method, "params": params, **self._session}))
        while (answer := self._receive()).get("id") != self._asked:
            self._events.append(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def show(self, scheme: str) -> None:
        """Set the color scheme and the width of the window."""
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        size = {"width": WIDTHS[scheme], "height": 800, "deviceScaleFactor": 1, "mobile": scheme == "dark"}
        self.ask("Emulation.setDeviceMetricsOverride", **size)

    def open(self, url: str) -> None:
        """Open a page and wait until all of it is loaded."""
        self._events.clear()
        self.ask("Page.navigate", url=url)
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            self._events.append(self._receive())

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression in JavaScript."""
        return self.ask("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def complaints(self, origin: str) -> list[str]:
        """Return the requests to other hosts, and the errors in the console."""
        found = []
        for method, params in ((event["method"], event["params"]) for event in self._events):
            if method == "Network.requestWillBeSent" and not params["request"]["url"].startswith((origin, "data:")):
                found.append(params["request"]["url"])
            entry = params.get("entry", {})
            has_failed = entry.get("level") == "error" and not entry.get("url", "").endswith("/favicon.ico")
            if has_failed or method == "Runtime.exceptionThrown":
                found.append(json.dumps(params))
        return found

    def _receive(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self._connection.recv(timeout=60))
        return answer


@pytest.fixture(scope="module")
def origin() -> Iterator[str]:
    handler = type("QuietHandler", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(SITE))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserTab]:
    profile = tmp_path_factory.mktemp("profile")
    command = [required("chromium", "chromium-browser", "google-chrome"), *FLAGS, f"--user-data-dir={profile}"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            port = profile / "DevToolsActivePort"
            eventually(lambda: port.exists() and "\n" in port.read_text())
            number, path = port.read_text().split("\n")
            with connect(f"ws://127.0.0.1:{number}{path}", max_size=None) as connection:
                yield BrowserTab(connection)
        finally:
            process.kill()


@pytest.mark.parametrize("scheme", WIDTHS)
def test_each_page_stands_alone_and_fits_the_window(tab: BrowserTab, origin: str, scheme: str) -> None:
    tab.show(scheme)
    wrong, links, anchors = [], dict[str, set[str]](), dict[str, set[str]]()
    for page in PAGES:
        tab.open(origin + page)
        links[page], anchors[page] = set(tab.evaluate(LINKS)), set(tab.evaluate(ANCHORS))
        wrong += [f"{page}: {each}" for each in tab.complaints(origin)]
        wrong += [f"{page}: {pixels} pixels too wide" for pixels in tab.evaluate(SIDEWAYS) if pixels > 0]
    for page in PAGES:
        for parts in (urlsplit(unquote(link)) for link in links[page] if link.startswith(origin)):
            place = parts.path[1:]
            if not (SITE / place).exists() or (place in anchors and parts.fragment not in {"", *anchors[place]}):
                wrong.append(f"{page}: leads to {place}#{parts.fragment}")
    assert len(PAGES) > 80
    assert wrong == []


def test_the_first_page_leads_to_the_index(tab: BrowserTab, origin: str) -> None:
    tab.open(origin + FIRST)
    eventually(lambda: tab.evaluate("location.pathname") == "/docs/README.html")


def test_the_search_finds_a_page_without_another_host(tab: BrowserTab, origin: str) -> None:
    tab.show("light")
    tab.open(f"{origin}search.html?q=replica+identity")
    eventually(lambda: "tables.html" in tab.evaluate(RESULTS))
    assert tab.complaints(origin) == []
