"""A paced writer at the source, and readers of the log, each in its own process. All connect again after a loss."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import httpx
import psycopg
from websockets.exceptions import WebSocketException

from tests.fixtures.streaming import stream

ROWS = 20_000
"""Rows of the table at any time: a transaction inserts one, changes one, and deletes the oldest."""
TABLE = f"""
create table soak (id bigint primary key, amount int not null, note text not null, large text);
alter table soak alter large set storage external;
insert into soak (id, amount, note, large)
select id, 0, md5(id::text), case when id % 50 = 0 then repeat(md5(id::text), 100) end
from generate_series(1, {ROWS}) id
"""
TRANSACTION = """
with new as (
    insert into soak
    select %(id)s, 0, md5(%(id)s::text), case when %(id)s %% 50 = 0 then repeat(md5(%(id)s::text), 100) end
), changed as (
    update soak set amount = amount + 1 where id = %(changed)s
)
delete from soak where id = %(old)s
"""
"""An update leaves `large` out of the WAL, as values in TOAST are."""
SESSIONS = 6
PAUSE = 0.2
"""Seconds before a lost client connects again."""
LOST = (psycopg.Error, httpx.HTTPError, WebSocketException, OSError)
CONTEXT = get_context("spawn")
RECEIVE = "select ack_id::text, record_pk::bigint, action from pipeline.receive('sql', 500)"


class Clients:
    """All client processes; they run from `start` to `end`, and leave what they saw in files of `folder`."""

    def __init__(self, source_dsn: str, database_dsn: str, port: int, folder: Path) -> None:
        self.folder = folder
        self.rate = CONTEXT.Value("d", 0.0)
        """Transactions a second that the writer aims at."""
        self.newest = {name: CONTEXT.Value("q", ROWS) for name in ("writer", "sql", "http", "ws1", "ws2")}
        """The newest row that each of them has written or seen."""
        self._ended, self._stopped = CONTEXT.Event(), CONTEXT.Event()
        writer = (source_dsn, self.rate, self.newest["writer"], self._stopped, folder / "writer.json")
        self._writer = CONTEXT.Process(target=write, args=writer)
        calls: dict[str, tuple[Callable[..., None], Any]] = {
            "sql": (follow_records, database_dsn),
            "http": (follow_records, f"http://127.0.0.1:{port}/v1/consumers/http"),
            "ws1": (follow_stream, port),
            "ws2": (follow_stream, port),
        }
        self._readers = [
            CONTEXT.Process(target=call, args=(name, given, self.newest[name], self._ended, folder / f"{name}.json"))
            for name, (call, given) in calls.items()
        ]

    def start(self) -> None:
        for process in (self._writer, *self._readers):
            process.start()

    def written(self) -> int:
        return int(self.newest["writer"].value)

    def stop_writing(self) -> dict[str, Any]:
        """Return `last`, the last number that was given to a transaction, and the numbers of `unknown` outcome."""
        self._stopped.set()
        self._writer.join()
        return self.read("writer")

    def stop_reading(self) -> None:
        self._ended.set()
        for process in self._readers:
            process.join()

    def read(self, name: str) -> dict[str, Any]:
        """Return what a process has left."""
        return dict(json.loads((self.folder / f"{name}.json").read_text()))

    def kill(self) -> None:
        """End all processes that still run."""
        for process in (self._writer, *self._readers):
            if process.pid:
                process.kill()
                process.join()


class Writer:
    """Writes transactions at `rate`, by several sessions that share the numbers."""

    def __init__(self, dsn: str, rate: Any, newest: Any, stopped: Any) -> None:
        self._dsn, self._rate, self._newest, self._stopped = dsn, rate, newest, stopped
        self._turns, self._due = threading.Lock(), time.monotonic()
        self.last, self.unknown = ROWS, list[int]()

    def write(self) -> None:
        """Write by one session after the other, until the end."""
        while not self._stopped.is_set():
            number = 0
            try:
                with psycopg.connect(self._dsn, autocommit=True, connect_timeout=2) as source:
                    while not self._stopped.is_set():
                        if number := self._next_number():
                            changed = number - random.randint(100, ROWS // 2)
                            values = {"id": number, "changed": changed, "old": number - ROWS}
                            source.execute(TRANSACTION, values, prepare=True)
                            self._newest.value = number
                            number = 0
            except psycopg.Error:
                self.unknown.extend([number] if number else [])
                self._stopped.wait(PAUSE)

    def _next_number(self) -> int:
        if not self._rate.value:
            self._stopped.wait(PAUSE)
            return 0
        with self._turns:
            now = time.monotonic()
            self._due = max(self._due, now - 1) + 1 / self._rate.value  # not to catch up more than a second
            self.last += 1
            number, wait = self.last, self._due - now
        self._stopped.wait(max(0.0, wait))
        return number


def write(dsn: str, rate: Any, newest: Any, stopped: Any, file: Path) -> None:
    """Write until the end; leave the last number, and those of unknown outcome."""
    writer = Writer(dsn, rate, newest, stopped)
    threads = [threading.Thread(target=writer.write) for _ in range(SESSIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    file.write_text(json.dumps({"last": writer.last, "unknown": writer.unknown}))


class Queue:
    """Receives and acknowledges the items of a queue, by SQL or over HTTP; knows which rows it says there are."""

    def __init__(self, newest: Any, ended: Any) -> None:
        self.rows, self._newest, self._ended = set[int](), newest, ended

    def by_sql(self, dsn: str, stack: ExitStack) -> None:
        log = stack.enter_context(psycopg.connect(dsn, autocommit=True))
        while not self._ended.is_set():
            items = log.execute(RECEIVE).fetchall()
            self._take((key, action) for _, key, action in items)
            log.execute("select pipeline.ack('sql', %s::uuid[])", [[item[0] for item in items]])
            if not items:
                self._ended.wait(0.1)

    def over_http(self, url: str, stack: ExitStack) -> None:
        client = stack.enter_context(httpx.Client(base_url=url, timeout=30))
        while not self._ended.is_set():
            items = _posted(client, "/receive", {"max": 500, "wait": 1})["data"]
            self._take((int(item["record_pk"]), item["action"]) for item in items)
            if items:
                _posted(client, "/ack", {"ack_ids": [item["ack_id"] for item in items]})

    def _take(self, items: Iterable[tuple[int, str]]) -> None:
        for key, action in items:
            (self.rows.discard if action == "delete" else self.rows.add)(key)
            self._newest.value = max(self._newest.value, key)


def follow_records(name: str, given: str, newest: Any, ended: Any, file: Path) -> None:
    """Follow the queue `sql` or `http`, at a DSN or a URL, to the end; leave the rows that it says there are."""
    queue = Queue(newest, ended)
    _until_ended(ended, partial(queue.by_sql if name == "sql" else queue.over_http, given))
    file.write_text(json.dumps({"rows": sorted(queue.rows)}))


def follow_stream(name: str, port: int, newest: Any, ended: Any, file: Path) -> None:
    """Read a cursor's WebSocket, and acknowledge; leave what was missing, and what came twice."""
    seen, twice, last = bytearray(), list[int](), 0

    def read(stack: ExitStack) -> None:
        nonlocal last
        line = stack.enter_context(stream(port, name, "?max=500")).line
        acknowledged = last
        while not ended.is_set():
            try:
                events = json.loads(line.recv(1)).get("data", [])
            except TimeoutError:
                events = []
            for event in events:
                if event["seq"] <= last:
                    continue  # it came before the connection was lost
                last = event["seq"]
                if event["action"] == "insert":
                    key = int(event["record_pk"])
                    seen.extend(bytes(max(0, key + 1 - len(seen))))
                    twice.extend([key] if seen[key] else [])
                    seen[key] = 1
                    newest.value = max(newest.value, key)
            if last > acknowledged:
                line.send(json.dumps({"ack": last}))
                acknowledged = last

    _until_ended(ended, read)
    missing = [number for number in range(ROWS + 1, len(seen)) if not seen[number]]
    file.write_text(json.dumps({"last": len(seen) - 1, "missing": missing, "twice": twice}))


def _posted(client: httpx.Client, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = client.post(path, json=body)
    answer.raise_for_status()
    return dict(answer.json())


def _until_ended(ended: Any, work: Callable[[ExitStack], None]) -> None:
    while not ended.is_set():
        try:
            with ExitStack() as stack:
                work(stack)
        except LOST:
            ended.wait(PAUSE)
