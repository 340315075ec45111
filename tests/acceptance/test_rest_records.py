"""A records consumer over HTTP, against `pipeline serve`: receive, wait, settle, hang up, stop."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from psycopg import sql

from tests.fixtures import plain_http
from tests.fixtures.postgres import unique
from tests.fixtures.server import Serving, Shared
from tests.fixtures.waiting import eventually

SECRET = "a value that must not be logged"
REFERENCE = Path(__file__).parents[2] / "docs/reference"
PUBLISHED = "select from pg_publication_tables where tablename = %s"
pytestmark = pytest.mark.xdist_group("rest records")


class Queue:
    """The consumer of one test, and its own orders: ids from `first` on."""

    def __init__(self, server: Serving, source: psycopg.Connection, name: str, **consumer: Any) -> None:
        self.server = server
        self.source = source
        self.path = f"/v1/consumers/{name}"
        self.http = plain_http.client(server.port, timeout=120)
        self.pool = ThreadPoolExecutor()
        source.execute(sql.SQL("create table {} (id int primary key, state text)").format(sql.Identifier(name)))
        self.name = name
        eventually(self._captured)
        made = self.http.post("/v1/consumers", json={"name": name, "tables": [f"public.{name}"], **consumer})
        assert made.status_code == 201

    def _captured(self) -> bool:
        return self.source.execute(PUBLISHED, [self.name]).fetchone() is not None

    def post(self, path: str, **body: Any) -> httpx.Response:
        return self.http.post(self.path + path, json=body)

    def receive(self, **body: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.post("/receive", **body).json()["data"]
        return found

    def receiving(self, **body: Any) -> Future[httpx.Response]:
        return self.pool.submit(self.post, "/receive", **body)

    def settle(self, how: str, item: dict[str, Any], **more: Any) -> int:
        count: int = self.post(f"/{how}", ack_ids=[item["ack_id"]], **more).json()["count"]
        return count

    def show(self) -> dict[str, Any]:
        found: dict[str, Any] = self.http.get(self.path).json()
        return found

    def order(self, number: int, state: str = "new") -> None:
        insert = sql.SQL("insert into {} values (%s, %s)").format(sql.Identifier(self.name))
        self.source.execute(insert, [number, state])

    def close(self) -> None:
        self.pool.shutdown()
        self.http.close()


@pytest.fixture(scope="module")
def server(shared: Shared) -> Serving:
    return shared.serve()


@pytest.fixture
def open_queue(server: Serving, shared: Shared) -> Iterator[Callable[..., Queue]]:
    with psycopg.connect(shared.source_dsn, autocommit=True) as source, ExitStack() as stack:

        def make(**consumer: Any) -> Queue:
            queue = Queue(server, source, unique("orders"), **consumer)
            stack.callback(queue.close)
            return queue

        yield make


@pytest.fixture
def queue(open_queue: Callable[..., Queue]) -> Queue:
    return open_queue()


def test_a_queue_from_its_first_item_to_its_last(queue: Queue) -> None:
    waiting = queue.receiving(wait=60)
    queue.order(1, SECRET)
    [item] = waiting.result(90).json()["data"]
    assert (item["record_pk"], item["action"], item["record"]["state"]) == ("1", "insert", SECRET)
    assert queue.receive() == []
    assert (queue.show()["pending"], queue.show()["in_flight"]) == (0, 1)
    assert queue.settle("ack", item) == 1
    assert queue.settle("ack", item) == 0

    queue.order(2)
    [item] = queue.receive(wait=60)
    delay, wait = 1.5, 60
    refused = time.monotonic()
    assert queue.settle("nack", item, delay=delay) == 1
    [again] = queue.receive(wait=wait)  # woken by time, as no notification comes
    assert 0.9 * delay < time.monotonic() - refused < wait
    assert (again["record_pk"], again["deliveries"]) == ("2", 2)
    assert again["ack_id"] != item["ack_id"]
    assert queue.settle("ack", item) == 0
    assert queue.settle("extend", again, visibility=60) == 1
    assert queue.settle("ack", again) == 1
    assert queue.show()["in_flight"] == 0
    assert SECRET not in queue.server.log()


def test_every_change_is_an_item_where_that_is_asked_for(open_queue: Callable[..., Queue]) -> None:
    queue = open_queue(collapse=False)
    assert queue.show()["collapse"] is False
    queue.order(1)
    queue.source.execute(sql.SQL("update {} set state = 'paid'").format(sql.Identifier(queue.name)))
    [first] = queue.receive(wait=60, max=10)
    eventually(lambda: queue.show()["pending"] == 1)
    waiting = queue.receiving(wait=60, max=10)
    assert queue.settle("ack", first) == 1
    [second] = waiting.result(90).json()["data"]
    assert [(each["action"], each["record"]["state"]) for each in (first, second)] == [
        ("insert", "new"),
        ("update", "paid"),
    ]


def test_an_item_that_nobody_acknowledges_comes_again(queue: Queue) -> None:
    queue.order(1)
    [first] = queue.receive(wait=60, visibility=0.5)
    [second] = queue.receive(wait=60)
    assert (second["seq"], second["deliveries"]) == (first["seq"], 2)


def test_pause_resume_reset(queue: Queue) -> None:
    queue.order(1)
    [item] = queue.receive(wait=60)
    assert queue.settle("ack", item) == 1
    assert queue.post("/pause").json()["state"] == "paused"
    queue.order(2)
    waiting = queue.receiving(wait=60, max=10)
    eventually(lambda: queue.show()["pending"] == 1)
    assert not waiting.done()
    assert queue.post("/resume").json()["state"] == "active"
    assert [item["record_pk"] for item in waiting.result(90).json()["data"]] == ["2"]
    assert queue.post("/reset", start="beginning").status_code == 200
    eventually(lambda: queue.show()["pending"] == 2)
    assert [item["record_pk"] for item in queue.receive(max=10)] == ["1", "2"]
    assert queue.http.delete(queue.path).status_code == 200
    assert queue.http.get(queue.path).status_code == 404


def test_dead_letters(open_queue: Callable[..., Queue]) -> None:
    queue = open_queue(max_deliveries=1)
    queue.order(1)
    [item] = queue.receive(wait=60)
    assert queue.settle("nack", item) == 1
    [dead] = queue.http.get(f"{queue.path}/dead-letters").json()["data"]
    assert (dead["seq"], dead["record"], dead["deliveries"]) == (item["seq"], item["record"], 1)
    eventually(lambda: f'pipeline_consumer_dead{{consumer="{queue.name}"}} 1.0' in queue.http.get("/metrics").text)
    assert queue.post("/dead-letters/retry", seqs=[item["seq"]]).json() == {"count": 1}
    assert len(queue.receive(wait=60)) == 1
    assert queue.post("/dead-letters/discard").json() == {"count": 0}


def test_every_metric_is_documented(queue: Queue) -> None:
    queue.order(1)
    page = (REFERENCE / "metrics.md").read_text()
    shown = set(re.findall(r"^# TYPE (\w+) ", queue.http.get("/metrics").text, re.MULTILINE))
    assert len(shown) > 20
    assert {name for name in shown if f"`{name}`" not in page} == set()


def test_nothing_is_handed_to_a_client_that_has_gone(queue: Queue) -> None:
    body = b'{"wait": 60}'
    head = f"POST {queue.path}/receive HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
    with socket.create_connection(("127.0.0.1", queue.server.port)) as line:
        line.sendall(head.encode() + b"content-type: application/json\r\n\r\n" + body)
        waiting = queue.receiving(wait=0.2)  # answered after the other has begun to wait
        assert waiting.result(90).json() == {"data": []}
    queue.order(1)
    [item] = queue.receive(wait=60)
    assert item["deliveries"] == 1


def test_the_database_ends_connections_and_items_come_all_the_same(queue: Queue, shared: Shared) -> None:
    waiting = queue.receiving(wait=60)
    queue.receive()
    with psycopg.connect(shared.database_dsn, autocommit=True) as log:
        log.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where application_name ~ '^pipeline (api|wakeup)' and datname = current_database()"
        )
    queue.order(1)
    answer = waiting.result(60)
    if answer.status_code == 503:  # it was asking at that very moment
        assert answer.headers["retry-after"] == "5"
        answer = queue.receiving(wait=60).result(60)
    assert len(answer.json()["data"]) == 1


def test_the_commands_that_the_docs_show(server: Serving, shared: Shared, tmp_path: Path) -> None:
    if not shutil.which("curl"):
        pytest.skip("curl is not installed: left out")
    [shown] = re.findall(r"```sh\n(API=.*?)```", (REFERENCE / "http.md").read_text(), re.DOTALL)
    script = shown.replace("127.0.0.1:12312", f"127.0.0.1:{server.port}").replace("curl ", "curl -sS --fail-with-body ")
    before, _, after = script.partition("# …")
    with psycopg.connect(shared.source_dsn, autocommit=True) as source:
        source.execute("create table orders (id int primary key)")
        eventually(lambda: source.execute(PUBLISHED, ["orders"]).fetchone() is not None)
        bash(before, tmp_path)
        source.execute("insert into orders values (1)")
    printed = bash(before.splitlines()[0] + "\n#" + after, tmp_path).splitlines()
    assert json.loads((tmp_path / "items.json").read_text())["data"][0]["record"] == {"id": 1}
    assert printed[0].startswith('{"count":1}{"data":[{"seq":')
    assert json.loads(printed[-1])["name"] == "mailer"


def bash(script: str, folder: Path) -> str:
    ended = subprocess.run(["bash", "-e", "-c", script], cwd=folder, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_last_stopping_the_server_ends_a_long_poll(queue: Queue) -> None:
    wait = 60
    waiting = [queue.receiving(wait=wait) for _ in range(3)]
    events = queue.pool.submit(queue.http.get, "/v1/events", params={"tables": "none.*", "wait": wait})
    queue.receive(wait=0.3)
    stopped = time.monotonic()
    assert queue.server.stop() == 0
    assert time.monotonic() - stopped < wait
    for answer in (*(each.result(60) for each in waiting), events.result(60)):
        assert (answer.status_code, answer.json()["data"]) == (200, [])
