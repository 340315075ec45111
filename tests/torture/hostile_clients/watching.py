"""What the server does for others meanwhile: latency of a consumer, /healthz, memory of its processes."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import psycopg

from tests.fixtures.processes import group, title

_WRITE_SECONDS, _LOOK_SECONDS = 0.2, 0.5


def total(memory: dict[str, float]) -> float:
    """Megabytes of all processes."""
    return sum(memory.values())


class Watched:
    """A writer at the source and who watches the server, each in a thread, inside of its block."""

    def __init__(self, url: str, token: str, source_dsn: str, leader: int) -> None:
        """`leader`: of the process group of the server."""
        self._url, self._source_dsn, self._leader = url, source_dsn, leader
        self._headers = {"authorization": f"Bearer {token}"}
        self._ended = threading.Event()
        self._written: dict[int, float] = {}
        self._seen, self._after = set[int](), 0
        self.latencies: list[tuple[float, float]] = []
        self.healths: list[tuple[float, float]] = []
        self.memory: list[tuple[float, dict[str, float]]] = []
        self.errors: list[str] = []
        jobs = (self._write, self._consume, self._ask_health, self._measure)
        self._threads = [threading.Thread(target=self._run, args=(job,)) for job in jobs]

    def __enter__(self) -> Watched:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def latency(self, begin: float, end: float) -> float:
        """The median of the consumer's latency, in seconds, for rows that were written between these times."""
        return statistics.median([took for at, took in self.latencies if begin <= at < end] or [float("inf")])

    def slowest_health(self, begin: float, end: float) -> float:
        """The longest that /healthz took."""
        return max((took for at, took in self.healths if begin <= at < end), default=float("inf"))

    def most_memory(self, begin: float, end: float) -> dict[str, float]:
        """Megabytes of each process at the moment at which all together had the most."""
        return max((found for at, found in self.memory if begin <= at < end), key=total)

    def _run(self, job: Callable[[], None]) -> None:
        while not self._ended.is_set():
            try:
                job()
            except (httpx.HTTPError, psycopg.Error, AssertionError) as error:
                self.errors.append(f"{time.monotonic():.1f} {job.__name__}: {error!r}")
                self._ended.wait(_LOOK_SECONDS)

    def _write(self) -> None:
        with psycopg.connect(self._source_dsn, autocommit=True) as connection:
            while not self._ended.wait(_WRITE_SECONDS):
                number = len(self._written)
                self._written[number] = time.monotonic()
                connection.execute("insert into watched values (%s)", [number])

    def _consume(self) -> None:
        asked: dict[str, Any] = {"wait": 5, "tables": "public.watched", "after": self._after}
        with httpx.Client(base_url=self._url, headers=self._headers, timeout=60) as client:
            while not self._ended.is_set():
                answer = client.get("/v1/events", params=asked)
                now = time.monotonic()
                assert answer.status_code == 200, answer.text
                self._after = asked["after"] = answer.json()["last_seq"]
                for event in answer.json()["data"]:
                    number = int(event["record_pk"])
                    if number not in self._seen:
                        self._seen.add(number)
                        self.latencies.append((self._written[number], now - self._written[number]))

    def _ask_health(self) -> None:
        while not self._ended.wait(_LOOK_SECONDS):
            began = time.monotonic()
            try:
                answer = httpx.get(f"{self._url}/healthz", timeout=30, verify=False)  # noqa: S501  a new connection
                assert answer.status_code == 200, answer.status_code
                self.healths.append((began, time.monotonic() - began))
            except (httpx.HTTPError, AssertionError):
                self.healths.append((began, float("inf")))
                raise

    def _measure(self) -> None:
        while not self._ended.wait(2 * _LOOK_SECONDS):
            found: dict[str, float] = {}
            for pid in group(self._leader):
                with suppress(OSError):
                    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
                    size = next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
                    found[f"{title(pid).removeprefix('pipeline: ')[:30]} {pid}"] = size * 1_024 / 1e6
            self.memory.append((time.monotonic(), found))
