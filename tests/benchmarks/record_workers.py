"""Workers of a records consumer: receive, acknowledge, again; each in its own process.

python -m tests.benchmarks.record_workers WORKERS BATCH SECONDS CONSUMER WAY DSN|URL. Ways: `sql`, the SQL functions;
`hasty`, in a session with synchronous_commit = off; `bare`, a table of the same shape with nothing but `for update skip
locked`; `queue`, one item at a time of `pipeline.client.Queue`; `http`, REST, or Sequin's wire where the URL ends with
its path. It says "ready" when all are connected, and when the seconds are over prints "ITEMS SECONDS" of each worker.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from http.client import HTTPConnection
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from urllib.parse import urlsplit

import psycopg

from pipeline.client import Queue

SEQUIN = "/api/http_pull_consumers"
RECEIVE = "select * from pipeline.receive(%(consumer)s, %(batch)s)"
ACK = "select pipeline.ack(%(consumer)s, %(ids)s)"
TAKE = """
    update bare_queue r set state = 'delivered', ack_id = gen_random_uuid(), deliveries = r.deliveries + 1,
        visible_at = clock_timestamp() + interval '30 seconds'
    from (select consumer_id, source_table_oid, record_pk, unkeyed from bare_queue
        where consumer_id = 1 and state = 'available' order by queued_seq limit %(batch)s for update skip locked) p
    where r.consumer_id = p.consumer_id and r.source_table_oid = p.source_table_oid and r.record_pk = p.record_pk
        and r.unkeyed = p.unkeyed
    returning r.ack_id, r.*
"""
DELETE = "with gone as (delete from bare_queue where ack_id = any (%(ids)s) returning 1) select count(*) from gone"
PLANNED_ONCE = """
    set plan_cache_mode = force_generic_plan; set enable_seqscan = off; set enable_bitmapscan = off;
    set enable_sort = off; set enable_hashjoin = off; set enable_mergejoin = off
"""
Turn = Callable[[], int]
"""Receive a batch and acknowledge it; how many items it had."""


def main(workers: int, batch: int, seconds: float, consumer: str, way: str, where: str) -> None:
    processes = multiprocessing.get_context("fork")  # a fresh interpreter each would take longer than they work
    begin = processes.Barrier(workers + 1)
    mine, theirs = processes.Pipe(duplex=False)
    started = [
        processes.Process(target=_work, args=(way, where, consumer, batch, seconds, begin, theirs))
        for _ in range(workers)
    ]
    for worker in started:
        worker.start()
    begin.wait()
    print("ready", flush=True)
    for _ in started:
        print(*mine.recv())
    for worker in started:
        worker.join()


def _work(way: str, where: str, consumer: str, batch: int, seconds: float, begin: Barrier, told: Connection) -> None:
    items = 0
    with WAYS[way](where, consumer, batch) as turn:
        begin.wait()
        started = time.monotonic()
        while time.monotonic() - started < seconds and (took := turn()):
            items += took
        told.send((items, f"{time.monotonic() - started:.6f}"))


@contextmanager
def _sql(
    dsn: str, consumer: str, batch: int, setting: str = "", receive: str = RECEIVE, ack: str = ACK
) -> Iterator[Turn]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(setting.encode())
        named = {"consumer": consumer, "batch": batch}

        def turn() -> int:
            items = connection.execute(receive.encode(), named, prepare=True).fetchall()
            ids = [item[0] for item in items]
            row = connection.execute(ack.encode(), {**named, "ids": ids}, prepare=True).fetchone()
            if row != (len(ids),):
                raise RuntimeError(f"{row} of {len(ids)} items were settled")
            return len(ids)

        yield turn


@contextmanager
def _queue(dsn: str, consumer: str, batch: int) -> Iterator[Turn]:
    with Queue(dsn, consumer, wait=0) as queue:
        next(queue).ack()

        def turn() -> int:
            for item in queue:
                with item:
                    return batch
            return 0

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


WAYS: dict[str, Callable[[str, str, int], AbstractContextManager[Turn]]] = {
    "sql": _sql,
    "hasty": partial(_sql, setting="set synchronous_commit = off"),
    "bare": partial(_sql, setting=PLANNED_ONCE, receive=TAKE, ack=DELETE),
    "queue": _queue,
    "http": over_http,
}

if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), *sys.argv[4:])
