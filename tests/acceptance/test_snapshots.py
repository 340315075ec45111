"""Rows from before a table is captured, read by a real server while writers go on and everything is killed."""

from __future__ import annotations

import os
import random
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import psycopg

from tests.fixtures.server import Serving
from tests.fixtures.waiting import eventually

KEYS, ROWS = 900, 700
MAKE = (
    "create table shop (id int primary key, n int, note text, big text) with (fillfactor = 10)",
    "alter table shop alter big set storage external",
    f"""insert into shop select i, 0, repeat('x', 150), repeat(md5(i::text), 100) from generate_series(1, {ROWS}) i""",
)
"""Few rows a block, so that there are several ranges."""
FIRST_START = (
    r"1 table will be read: about [\d,]+ rows?, [\d.]+ \wB; at a rough 50,000 rows/s that takes 1 s, "
    r"and about [\d.]+ \wB of disk in the pipeline database"
)


def write(dsn: str, seed: int, stop: threading.Event) -> None:
    """Updates that leave the large value alone, key changes, deletes and inserts."""
    choose = random.Random(seed)
    with psycopg.connect(dsn) as source:
        while not stop.wait(0.006):
            with suppress(psycopg.errors.UniqueViolation, psycopg.errors.DeadlockDetected), source.transaction():
                for _ in range(choose.randint(1, 4)):
                    key, other = choose.randint(1, KEYS), choose.randint(1, KEYS)
                    statement = choose.choice(STATEMENTS)
                    source.execute(statement, {"id": key, "other": other})
                if choose.random() < 0.1:
                    raise psycopg.Rollback


STATEMENTS = (
    "update shop set n = n + 1 where id = %(id)s",
    "update shop set n = n + 1, note = repeat('y', 300) where id = %(id)s",
    "update shop set big = repeat(md5(random()::text), 90) where id = %(id)s",
    "update shop set id = %(other)s where id = %(id)s",
    "delete from shop where id = %(id)s",
    "insert into shop values (%(id)s, 0, 'new', repeat(md5(random()::text), 80)) on conflict do nothing",
)


@contextmanager
def writers(dsn: str, number: int = 2) -> Iterator[None]:
    stop = threading.Event()
    threads = [threading.Thread(target=write, args=(dsn, seed, stop)) for seed in range(number)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def snapshot_of(log: psycopg.Connection[Any]) -> tuple[Any, ...] | None:
    with suppress(psycopg.errors.UndefinedTable):
        row: tuple[Any, ...] | None = log.execute(
            """select state, complete_seq, reason from pipeline.snapshots where "table" = 'public.shop'"""
        ).fetchone()
        return row
    return None


def wait_for_log(source: psycopg.Connection[Any], log: psycopg.Connection[Any]) -> None:
    """Until it has everything that was committed by now."""
    source.execute("select pg_logical_emit_message(true, 'test', 'end')")
    eventually(lambda: log.execute("select count(*) from sequin_events where action = 'message'").fetchone() == (1,))


def folded(log: psycopg.Connection[Any], upto: int) -> dict[str, tuple[Any, ...]]:
    """The table as the log has it up to a seq."""
    rows = log.execute(
        """select action, record_pk, record, changes, unchanged_columns from sequin_events
        where source_table_name = 'shop' and seq <= %s order by seq""",
        (upto,),
    ).fetchall()
    found: dict[str, tuple[Any, ...]] = {}
    for action, key, record, changes, unchanged in rows:
        if action == "update" and changes and "id" in changes:
            found.pop(str(changes["id"]), None)
        if action == "delete":
            found.pop(key, None)
        else:
            found[key] = (record["id"], record["n"], record["note"], record.get("big"), unchanged)
    return found


def kill_one(server: Serving, choose: random.Random) -> None:
    found = [pid for role, pid in server.children().items() if role not in ("api", "schedule", "fork server")]
    if found:
        with suppress(ProcessLookupError):
            os.kill(choose.choice(found), signal.SIGKILL)


def handed_out(server: Serving, name: str) -> list[tuple[str, str, Any]]:
    """Action, key and record of all items of a new consumer of the table, once it knows the whole log."""
    found: list[tuple[str, str, Any]] = []
    path = f"/v1/consumers/{name}"
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=70) as http:
        made = http.post("/v1/consumers", json={"name": name, "start": "beginning", "tables": ["public.shop"]})
        assert made.status_code == 201, made.text
        eventually(lambda: http.get(path).json()["lag"] == 0)
        while items := http.post(f"{path}/receive", json={"max": 500}).json()["data"]:
            settled = http.post(f"{path}/ack", json={"ack_ids": [item["ack_id"] for item in items]})
            assert settled.json() == {"count": len(items)}
            found += [(item["action"], item["record_pk"], item["record"]) for item in items]
        shown = http.get(path).json()
        assert (shown["pending"], shown["in_flight"]) == (0, 0)
    return found


def test_a_consumer_from_the_beginning_gets_every_live_row_once(
    serve: Callable[..., Serving], source_dsn: str, database_dsn: str
):
    with (
        psycopg.connect(source_dsn, autocommit=True) as source,
        psycopg.connect(database_dsn, autocommit=True) as log,
    ):
        for statement in MAKE:
            source.execute(statement.encode())
        server = serve()
        eventually(lambda: (snapshot_of(log) or [""])[0] == "complete")
        assert re.search(FIRST_START, server.log()), "rows, bytes, time and disk, before it begins"
        rows: dict[str, Any] = dict(source.execute("select id::text, to_jsonb(shop) from shop").fetchall())
        assert sorted(handed_out(server, "first")) == sorted(("read", key, row) for key, row in rows.items())

        source.execute("update shop set n = 1 where id % 7 = 0")
        source.execute("delete from shop where id % 5 = 0")
        wait_for_log(source, log)
        items = handed_out(server, "second")
        live = [(key, record) for action, key, record in items if action != "delete"]
        rows = dict(source.execute("select id::text, to_jsonb(shop) from shop").fetchall())
        assert (len(live), dict(live)) == (len(rows), rows)
        assert sorted({action for action, *_ in items}) == ["delete", "read", "update"]
        assert len(items) == ROWS


def test_a_table_is_whole_while_it_is_written_and_everything_is_killed(
    serve: Callable[..., Serving], source_dsn: str, database_dsn: str
):
    choose = random.Random(1)
    with (
        psycopg.connect(source_dsn, autocommit=True) as source,
        psycopg.connect(database_dsn, autocommit=True) as log,
    ):
        for statement in MAKE:
            source.execute(statement.encode())
        with writers(source_dsn):
            server = serve()
            for _ in range(4):
                kill_one(server, choose)
                threading.Event().wait(0.4)
            eventually(lambda: (snapshot_of(log) or [""])[0] == "complete")
        whole = source.execute("select id, n, note, big from shop").fetchall()
        wait_for_log(source, log)
        (head,) = log.execute("select max(seq) from sequin_events").fetchone() or (0,)
        assert folded(log, head) == {str(row[0]): (*row, None) for row in whole}
        reads = log.execute("select count(*) from sequin_events where action = 'read'").fetchone()
        assert reads is not None and reads[0] > ROWS / 2
