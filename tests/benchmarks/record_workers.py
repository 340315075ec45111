"""Workers of a records consumer: receive, acknowledge, again; each in a process of its own.

python -m tests.benchmarks.record_workers WORKERS BATCH SECONDS CONSUMER DSN|URL: by the SQL functions, by REST, or by
Sequin's wire where the URL ends with its path; says "ready" when all are connected, and when the seconds are over
prints "ITEMS SECONDS" of each worker.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from urllib.parse import urlsplit

import psycopg

SEQUIN = "/api/http_pull_consumers"
Turn = Callable[[], int]
"""Receive a batch and acknowledge it; how many items it had."""


def main(workers: int, batch: int, seconds: float, consumer: str, where: str) -> None:
    processes = multiprocessing.get_context("fork")  # a fresh interpreter each would take longer than they work
    begin = processes.Barrier(workers + 1)
    mine, theirs = processes.Pipe(duplex=False)
    started = [
        processes.Process(target=_work, args=(where, consumer, batch, seconds, begin, theirs)) for _ in range(workers)
    ]
    for worker in started:
        worker.start()
    begin.wait()
    print("ready", flush=True)
    for _ in started:
        print(*mine.recv())
    for worker in started:
        worker.join()


def _work(where: str, consumer: str, batch: int, seconds: float, begin: Barrier, told: Connection) -> None:
    items, turns = 0, over_http if where.startswith("http:") else _sql
    with turns(where, consumer, batch) as turn:
        begin.wait()
        started = time.monotonic()
        while time.monotonic() - started < seconds and (took := turn()):
            items += took
        told.send((items, f"{time.monotonic() - started:.6f}"))


@contextmanager
def _sql(dsn: str, consumer: str, batch: int) -> Iterator[Turn]:
    with psycopg.connect(dsn, autocommit=True) as connection:

        def turn() -> int:
            items = connection.execute(
                "select * from pipeline.receive(%s, %s)", (consumer, batch), prepare=True
            ).fetchall()
            ids = [item[0] for item in items]
            row = connection.execute("select pipeline.ack(%s, %s)", (consumer, ids), prepare=True).fetchone()
            if row != (len(ids),):
                raise RuntimeError(f"{row} of {len(ids)} items were settled")
            return len(ids)

        yield turn


@contextmanager
def over_http(url: str, consumer: str, batch: int) -> Iterator[Turn]:
    """By our REST, or by Sequin's wire where the URL ends with its path."""
    address, size = urlsplit(url), "max_batch_size" if url.endswith(SEQUIN) else "max"
    paths = address.path or "/v1/consumers"
    assert address.hostname is not None
    connection = HTTPConnection(address.hostname, address.port, timeout=60)

    def ask(what: str, body: dict[str, object]) -> dict[str, object]:
        connection.request(
            "POST",
            f"{paths}/{consumer}/{what}",
            json.dumps(body),
            {"Content-Type": "application/json", "Authorization": "Bearer any"},
        )
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{what}: {answer.status} {text[:200]!r}")
        found: dict[str, object] = json.loads(text)
        return found

    def turn() -> int:
        items = ask("receive", {size: batch})["data"]
        assert isinstance(items, list)
        if items:
            ask("ack", {"ack_ids": [item["ack_id"] for item in items]})
        return len(items)

    try:
        yield turn
    finally:
        connection.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4], sys.argv[5])
