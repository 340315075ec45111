"""`Queue` and `AsyncQueue`: items one at a time, taken ahead and settled together, and nothing of that is noticed."""

from __future__ import annotations

import asyncio
import gc
import re
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from pipeline.client import AsyncQueue, Item, Queue, held_items, pump
from pipeline.errors import (
    ConsumerError,
    DatabaseUnavailableError,
    PipelineError,
    StatementRefusedError,
    UnknownConsumerError,
    WrongConsumerKindError,
)
from tests.fixtures.postgres import Cluster, unique
from tests.fixtures.server import ROOT, environment
from tests.fixtures.staged import Client, Staged, Table, create, insert, staging_of, update
from tests.fixtures.waiting import PATIENCE, eventually

ROWS = 250
NEVER = 600.0
STATES = "select state, count(*), max(deliveries) from consumer_records group by state order by state"
END_QUEUES = """
    select pg_terminate_backend(pid) from pg_stat_activity
    where application_name = 'pipeline queue' and datname = current_database()
"""
DOC = (ROOT / "docs/how-to/consumers-in-sql.md").read_text()
WORKER = """
import sys
from pipeline.client import Queue

with Queue(sys.argv[1], "c", visibility=600) as queue:
    for item in queue:
        with item:
            print(item.record_pk, flush=True)
            sys.stdin.readline()
print("not reached", flush=True)
"""


@pytest.fixture(scope="module")
def staging(cluster: Cluster) -> Iterator[Staged]:
    with staging_of(cluster, Table("t")) as made:
        yield made


def fill(staged: Staged, rows: int = ROWS, **options: Any) -> Client:
    client = create(staged.connection, **options)
    staged.moved(*(insert("t", id=number, g=number % 7) for number in range(rows)))
    return client


def states(staged: Staged) -> list[tuple[Any, ...]]:
    """Of each state how many items, and how often one was delivered."""
    return staged.connection.execute(STATES).fetchall()


def test_each_item_is_handled_once_and_acknowledged(staged: Staged):
    fill(staged)
    with Queue(staged.dsn, "c", wait=0) as queue:
        handled = []
        for item in queue:
            with item:
                handled.append((item.record_pk, item.seq, item.action, item.record, item.deliveries))
    assert handled == [(str(n), n + 1, "insert", {"id": n, "g": n % 7}, 1) for n in range(ROWS)]
    assert states(staged) == []


def test_an_item_whose_handler_raises_returns_after_its_delay(staged: Staged, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pump, "POLL_SECONDS", NEVER)
    fill(staged, 3)
    seen = []
    with Queue(staged.dsn, "c") as queue:
        for item in queue:
            seen.append((item.record_pk, item.deliveries))
            if item.record_pk == "0" and item.deliveries == 1:
                item.nack(0.1)
            elif item.record_pk == "1":
                with pytest.raises(ValueError, match="refused"), item:
                    raise ValueError("refused")
            else:
                item.ack()
            if len(seen) == 4:
                break
    assert seen == [("0", 1), ("1", 1), ("2", 1), ("0", 2)]
    assert states(staged) == [("available", 1, 1)]


def test_who_waits_is_woken_by_a_notification(staged: Staged, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pump, "POLL_SECONDS", NEVER)
    create(staged.connection)
    with Queue(staged.dsn, "c") as queue:
        got: list[Item] = []
        waiting = threading.Thread(target=lambda: got.append(next(queue)))
        waiting.start()
        listens = (
            "select from pg_stat_activity where application_name = 'pipeline queue' and query like '%next_visible%'"
        )
        eventually(lambda: staged.connection.execute(listens).fetchone() is not None)
        staged.moved(insert("t", id=1))
        waiting.join(60)
        assert [item.record_pk for item in got] == ["1"]


def test_prefetched_items_are_returned_as_if_never_delivered(staged: Staged):
    client = fill(staged, max_deliveries=1)
    with Queue(staged.dsn, "c", ahead=10) as queue:  # whatever the pace of the first two
        first, second = next(queue), next(queue)
        assert states(staged)[1][:2] == ("delivered", 10)
        first.ack()
    assert states(staged) == [("available", ROWS - 2, 0), ("delivered", 1, 1)]
    assert [item.pk for item in client.receive(3)] == ["2", "3", "4"]
    with pytest.raises(ConsumerError, match="the queue of consumer 'c' is closed: acknowledge items before that"):
        second.ack()
    assert list(queue) == []


def test_a_queue_that_is_forgotten_gives_back_too(staged: Staged):
    fill(staged)
    for item in Queue(staged.dsn, "c"):
        item.ack()
        break
    gc.collect()
    assert states(staged) == [("available", ROWS - 1, 0)]


def test_an_item_that_changes_while_it_is_held_comes_again(staged: Staged):
    fill(staged, 2)
    with Queue(staged.dsn, "c") as queue:
        held = next(queue)
        staged.moved(update("t", id=0, g=9), update("t", id=1, g=9))
        held.ack()
        old = next(queue)
        old.ack()
        new = [next(queue), next(queue)]
        assert [(item.record_pk, item.record["g"]) for item in new] == [("0", 9), ("1", 9)]
    assert [state for state, *_ in states(staged)] == ["delivered"]


def test_leases_are_extended_while_the_program_iterates_else_returned(staged: Staged, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(held_items, "_SHARE", 0.1)
    fill(staged, 5)
    ask, until = pump.QueuePump._ask, list[Any]()

    async def latest(connection: Any) -> Any:
        return await (await connection.execute("select max(visible_at) from consumer_records")).fetchone()

    async def noted(of: pump.QueuePump, connection: Any, name: str, **values: Any) -> Any:
        if name != "extend_items":
            return await ask(of, connection, name, **values)
        until.append(await latest(connection))
        found = await ask(of, connection, name, **values)
        until.append(await latest(connection))
        return found

    monkeypatch.setattr(pump.QueuePump, "_ask", noted)
    with Queue(staged.dsn, "c", visibility=2) as queue:
        item = next(queue)
        eventually(lambda: len(until) > 1)
        assert until[0] < until[1]
        eventually(lambda: [row[:2] for row in states(staged)] == [("available", 4), ("delivered", 1)])
        item.ack()
        assert sorted(next(queue).record_pk for _ in range(4)) == ["1", "2", "3", "4"]


def test_what_somebody_else_has_by_now_is_not_handed_to_the_program(staged: Staged, monkeypatch: pytest.MonkeyPatch):
    """As after a while without the database."""
    other, ask, stolen, given = fill(staged, 5), pump.QueuePump._ask, list[str | None](), list[object]()

    async def late(of: pump.QueuePump, connection: Any, name: str, **values: Any) -> Any:
        if name == "extend_items" and not stolen:
            other.expire()
            stolen.extend(item.pk for item in other.receive(3, "1 hour"))
        found = await ask(of, connection, name, **values)
        if name == "give_back_items":
            given.append(found)
        return found

    monkeypatch.setattr(pump.QueuePump, "_ask", late)
    with Queue(staged.dsn, "c", visibility=3) as queue:
        next(queue)
        eventually(lambda: given)
        for expected in ("3", "4"):
            with next(queue) as item:
                assert item.record_pk == expected
    assert stolen == ["0", "1", "2"]


def test_stop_ends_the_loop_behind_the_item_in_hand(staged: Staged):
    fill(staged)
    with Queue(staged.dsn, "c") as queue:
        handled = []
        for item in queue:
            with item:
                handled.append(item.record_pk)
                queue.stop()
        eventually(lambda: states(staged) == [("available", ROWS - 1, 0)])
    assert handled == ["0"]


def test_one_that_waits_is_stopped(staged: Staged):
    create(staged.connection)
    with Queue(staged.dsn, "c") as queue:
        waiting = threading.Thread(target=lambda: [*queue])
        waiting.start()
        queue.stop()
        waiting.join(60)
        assert not waiting.is_alive()


def test_one_that_waits_is_stopped_while_the_database_is_away(staged: Staged, caplog: pytest.LogCaptureFixture):
    fill(staged, 1)
    connects = f"alter database {staged.connection.info.dbname} allow_connections "
    handled = list[str]()

    def work() -> None:
        for item in queue:
            item.ack()
            handled.append(item.record_pk)

    elsewhere = psycopg.connect(make_conninfo(staged.dsn, dbname="postgres"), autocommit=True)
    with (
        elsewhere,
        suppress(DatabaseUnavailableError),
        Queue(staged.dsn, "c") as queue,
    ):  # it may be closed before that is back
        working = threading.Thread(target=work)
        working.start()
        eventually(lambda: handled)
        elsewhere.execute(f"{connects} false".encode())
        try:
            staged.connection.execute(END_QUEUES)
            eventually(lambda: "trying again" in caplog.text)
            queue.stop()
            working.join(PATIENCE)
            assert not working.is_alive()
        finally:
            elsewhere.execute(f"{connects} true".encode())


def test_a_lost_connection_is_made_again_and_loses_nothing(staged: Staged, caplog: pytest.LogCaptureFixture):
    fill(staged)
    handled: set[str | None] = set()
    # An item that no client received, since the connection was lost just then, comes when its visibility is over.
    with Queue(staged.dsn, "c", visibility=10) as queue:
        for item in queue:
            if len(handled) == ROWS // 3:  # while more is to come than is taken ahead
                staged.connection.execute(END_QUEUES)
            with item:
                handled.add(item.record_pk)
            if len(handled) == ROWS:
                break
    assert states(staged) == []
    assert re.search(r"the queue of consumer 'c' \(.+\) is not available: .+; trying again", caplog.text)


def test_an_acknowledgement_that_is_too_late_is_said(staged: Staged, caplog: pytest.LogCaptureFixture):
    fill(staged, 1)
    with Queue(staged.dsn, "c") as queue:
        item = next(queue)
        staged.connection.execute("select pipeline.reset_consumer('c')")
        item.ack()
    assert [record.message for record in caplog.records] == [
        "items were acknowledged or refused too late, and are delivered again"
    ]


@pytest.mark.parametrize(
    ("consumer", "error", "says"),
    [
        ("missing", UnknownConsumerError, "there is no consumer 'missing'"),
        ("cursor", WrongConsumerKindError, "consumer 'cursor' is of kind cursor; this is for kind records"),
    ],
)
def test_what_the_database_refuses_is_raised(staged: Staged, consumer: str, error: type[PipelineError], says: str):
    create(staged.connection, "cursor", kind="cursor")
    queue = Queue(staged.dsn, consumer)
    with pytest.raises(error, match=says):
        next(queue)
    with pytest.raises(error, match=says):
        queue.close()


@pytest.mark.parametrize("kind", [Queue, AsyncQueue])
def test_an_unknown_consumer_is_one_line_without_its_causes(kind: type[Queue | AsyncQueue], staged: Staged):
    async def use_async() -> None:
        async with AsyncQueue(staged.dsn, "missing") as queue:
            await anext(queue)

    def use() -> None:
        with Queue(staged.dsn, "missing") as queue:
            next(queue)

    with pytest.raises(UnknownConsumerError) as raised:
        use() if kind is Queue else asyncio.run(use_async())
    lines = "".join(traceback.format_exception(raised.value)).splitlines()
    assert [line for line in lines if "Traceback" in line or "psycopg" in line] == [lines[0]]
    remedy = "create it: `pipeline consumers create`, or POST /v1/consumers"
    assert lines[-1] == f"pipeline.errors.UnknownConsumerError: there is no consumer 'missing'; {remedy}"


def test_a_consumer_that_is_dropped_meanwhile_is_said(staged: Staged):
    fill(staged, 1)
    queue = Queue(staged.dsn, "c")
    item = next(queue)
    staged.connection.execute("select pipeline.drop_consumer('c')")
    with pytest.raises(UnknownConsumerError):
        next(queue)
    with pytest.raises(UnknownConsumerError):
        item.ack()


def test_a_database_that_is_not_there_is_said_at_once(staged: Staged):
    with (
        pytest.raises(DatabaseUnavailableError, match=r"the queue of consumer 'c' .* is not available"),
        Queue("host=127.0.0.1 port=1 dbname=x", "c") as queue,
    ):
        next(queue)


def test_who_may_do_what_the_page_grants_works_off_a_queue(staged: Staged):
    fill(staged, 20)
    role = unique("worker")
    (grants,) = re.findall(r"```sql\n.*?(grant usage.+?)```", DOC, re.DOTALL)
    staged.connection.execute(f"create role {role} login")
    try:
        staged.connection.execute(grants.replace("to worker", f"to {role}").encode())
        with Queue(f"{staged.dsn} user={role}", "c") as queue:
            next(queue).ack()
        assert states(staged) == [("available", 19, 0)]
        staged.connection.execute(f"revoke execute on function pipeline.receive from {role}")
        with pytest.raises(StatementRefusedError, match="permission denied for function receive"):
            next(Queue(f"{staged.dsn} user={role}", "c"))
    finally:
        staged.connection.execute(f"drop owned by {role}; drop role {role}")


@pytest.mark.parametrize("wrong", [{"ahead": 0}, {"ahead": 1001}, {"visibility": 0}], ids=str)
def test_arguments_that_cannot_be(wrong: dict[str, Any]):
    with pytest.raises(ConsumerError, match=next(iter(wrong))):
        Queue("dbname=x", "c", **wrong)


def test_workers_of_groups_get_each_group_in_order(staged: Staged):
    fill(staged, 70, group_by=["g"])
    handled: list[Item] = []
    queues = [Queue(staged.dsn, "c") for _ in range(3)]

    def work(queue: Queue) -> None:
        with queue:
            for item in queue:
                with item:
                    handled.append(item)
                if len(handled) == 70:
                    for each in queues:
                        each.stop()

    workers = [threading.Thread(target=work, args=(queue,), daemon=True) for queue in queues]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert states(staged) == []
    for group in range(7):
        assert [item.record["id"] for item in handled if item.record["g"] == group] == [*range(group, 70, 7)]


@pytest.fixture
def worker(staged: Staged) -> Iterator[subprocess.Popen[str]]:
    fill(staged)
    with subprocess.Popen(
        [sys.executable, "-c", WORKER, staged.dsn],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment({}),
        cwd=ROOT,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "0\n"
        yield process
        process.kill()


def test_sigterm_ends_a_program_behind_its_item_and_gives_the_rest_back(staged: Staged, worker: subprocess.Popen[str]):
    worker.send_signal(signal.SIGTERM)
    eventually(lambda: [row[:2] for row in states(staged)] == [("available", ROWS - 1), ("delivered", 1)])
    shown, _ = worker.communicate("\n", timeout=60)
    assert (shown, worker.returncode) == ("", -signal.SIGTERM)
    assert states(staged) == [("available", ROWS - 1, 0)]


def test_a_second_sigterm_ends_it_at_once(staged: Staged, worker: subprocess.Popen[str]):
    worker.send_signal(signal.SIGTERM)
    eventually(lambda: [row[:2] for row in states(staged)] == [("available", ROWS - 1), ("delivered", 1)])
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(60) == -signal.SIGTERM


def test_a_handler_of_the_programs_own_stays(staged: Staged):
    fill(staged, 1)
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with Queue(staged.dsn, "c") as queue:
            next(queue).ack()
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


def asynchronously(staged: Staged, work: Callable[[AsyncQueue], Any], **options: Any) -> Any:
    async def run() -> Any:
        async with AsyncQueue(staged.dsn, "c", **options) as queue:
            return await work(queue)

    return asyncio.run(run())


def test_a_program_on_asyncio(staged: Staged):
    fill(staged)

    async def work(queue: AsyncQueue) -> list[str]:
        handled = []
        async for item in queue:
            with item:
                handled.append(item.record_pk)
                await asyncio.sleep(0)
        return handled

    assert asynchronously(staged, work, wait=0) == [str(n) for n in range(ROWS)]
    assert states(staged) == []


def test_a_program_on_asyncio_that_stops_gives_back(staged: Staged):
    fill(staged)

    async def work(queue: AsyncQueue) -> None:
        async for item in queue:
            with item:
                queue.stop()

    asynchronously(staged, work)
    assert states(staged) == [("available", ROWS - 1, 0)]


def test_a_program_on_asyncio_waits_while_others_work(staged: Staged, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pump, "POLL_SECONDS", NEVER)
    create(staged.connection)

    async def work(queue: AsyncQueue) -> str:
        async def take() -> str:
            return (await anext(queue)).record_pk

        taking = asyncio.create_task(take())
        await asyncio.to_thread(staged.moved, insert("t", id=1))
        return await taking

    assert asynchronously(staged, work) == "1"
    staged.connection.execute("select pipeline.drop_consumer('c')")
    with pytest.raises(UnknownConsumerError):
        asynchronously(staged, anext)


def test_psycopg_ends_no_transaction_of_ours(staged: Staged):
    """The queue's session is in no transaction while the program handles an item."""
    fill(staged)
    with Queue(staged.dsn, "c") as queue:
        next(queue)
        inside = "select state from pg_stat_activity where application_name = 'pipeline queue'"
        eventually(lambda: staged.connection.execute(inside).fetchall() == [("idle",)], errors=(psycopg.Error,))
