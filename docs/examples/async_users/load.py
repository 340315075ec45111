"""A bounded load for app.py: so many POSTs by some clients at once; says what failed, and how far followers lagged.

Needs Python alone. PIPELINE_URL is where `pipeline serve` listens, PIPELINE_API_TOKEN its token, where it has one.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

PATIENCE = 60.0
"""Seconds that followers may take after the last POST."""


class Load:
    """Numbers that are handed out once each, and what became of the POSTs."""

    def __init__(self, url: str, requests: int) -> None:
        self._url = urlsplit(url)
        self._numbers: Iterator[int] = iter(range(requests))
        self._lock = threading.Lock()
        self.errors: list[str] = []

    def work(self) -> None:
        """One client, which keeps its connection."""
        connection = http.client.HTTPConnection(self._url.hostname or "", self._url.port or 80, timeout=30)
        while (number := self._next()) is not None:
            body = json.dumps({"name": f"user {number}", "email": f"user{number}@example.com"})
            try:
                connection.request("POST", "/async-users", body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                answer.read()
                if answer.status != 201:
                    self.errors.append(f"status {answer.status}")
            except OSError as error:
                self.errors.append(str(error))
                connection.close()
        connection.close()

    def _next(self) -> int | None:
        with self._lock:
            return next(self._numbers, None)


class Lag(threading.Thread):
    """Looks at the followers while the load runs. `changes`, `seconds`: the most that one of them was behind."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url, token = urlsplit(url), os.environ.get("PIPELINE_API_TOKEN")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.changes, self.seconds = 0, 0.0

    def look(self) -> int:
        """How many changes the one that is farthest behind lacks now."""
        connection = http.client.HTTPConnection(self._url.hostname or "", self._url.port or 80, timeout=10)
        connection.request("GET", "/v1/followers", headers=self._headers)
        found = json.load(connection.getresponse())["data"]
        connection.close()
        behind = max((each["lag_seqs"] for each in found), default=0)
        self.changes = max(self.changes, behind)
        self.seconds = max(self.seconds, *(each["lag_seconds"] for each in found), 0.0)
        return behind

    def run(self) -> None:
        """Until the program ends."""
        while True:
            self.look()
            time.sleep(0.2)


def main() -> int:
    """Returns 1 where a POST has failed, or the followers did not catch up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="where app.py listens")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=16)
    given = parser.parse_args()
    load, lag = Load(given.url, given.requests), Lag(os.environ.get("PIPELINE_URL", "http://127.0.0.1:12312"))
    lag.look()
    lag.start()
    began = time.monotonic()
    clients = [threading.Thread(target=load.work) for _ in range(given.clients)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    ended = time.monotonic()
    print(f"{given.requests} POSTs in {ended - began:.1f} s, errors: {len(load.errors)}", *load.errors[:3], sep="\n  ")
    time.sleep(1)  # the log has them by then, and a follower says twice a second how far it is
    while (behind := lag.look()) and time.monotonic() < ended + PATIENCE:
        time.sleep(0.1)
    print(f"peak lag: {lag.changes} changes, {lag.seconds:.1f} s")
    print(
        f"caught up {max(time.monotonic() - ended - 1, 0):.1f} s after the last one" if not behind else "not caught up"
    )
    return 1 if load.errors or behind else 0


if __name__ == "__main__":
    raise SystemExit(main())
