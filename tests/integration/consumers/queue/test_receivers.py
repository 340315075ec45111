"""Several receivers at once: each item to one of them, limits kept exactly, one of a group at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from hashlib import sha256

import psycopg
import pytest

from tests.fixtures.postgres import Cluster, unique
from tests.fixtures.staged import (
    Client,
    Item,
    Staged,
    Table,
    create,
    delete,
    insert,
    listening,
    message,
    staging_of,
    truncate,
    update,
)
from tests.fixtures.waiting import eventually

RECEIVERS, ROWS, GROUPS = 6, 120, 7


@pytest.fixture(scope="module")
def staging(cluster: Cluster) -> Iterator[Staged]:
    with staging_of(cluster, Table("t"), Table("other")) as made:
        yield made


def together(staged: Staged, work: Callable[[Client], None]) -> None:
    """`work` on several connections at once; the first error is raised."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            with psycopg.connect(staged.dsn, autocommit=True) as connection:
                work(Client(connection, "c"))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(RECEIVERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_each_item_goes_to_one_receiver(staged: Staged):
    client = create(staged.connection)
    staged.moved(*(insert("t", id=number) for number in range(ROWS)))
    received: list[Item] = []

    def work(mine: Client) -> None:
        while items := mine.receive(5):
            received.extend(items)
            assert mine.ack(*items) == len(items)

    together(staged, work)
    assert sorted(int(item.pk) for item in received) == [*range(ROWS)]
    assert client.receive() == []


def test_max_unacknowledged_is_exact(staged: Staged):
    client = create(staged.connection, max_unacknowledged=10)
    staged.moved(*(insert("t", id=number) for number in range(ROWS)))
    received: list[Item] = []
    together(staged, lambda mine: received.extend(mine.receive(4)))
    assert len(received) == 10
    assert client.receive() == []
    client.ack(*received[:3])
    assert len(client.receive()) == 3
    client.expire()
    assert len(client.receive()) == 10


def test_one_of_a_group_is_out_at_a_time_and_in_order(staged: Staged):
    create(staged.connection, group_by=["g"])
    staged.moved(*(insert("t", id=number, g=number % GROUPS) for number in range(ROWS)))
    out: set[int] = set()
    done: list[tuple[int, int]] = []
    guard = threading.Lock()

    def work(mine: Client) -> None:
        while len(done) < ROWS:
            items = mine.receive(3)
            with guard:
                groups = [item.record["g"] for item in items]
                assert len(set(groups)) == len(groups)
                assert not out & set(groups)
                out.update(groups)
            with guard:
                out.difference_update(groups)
                done.extend((item.record["g"], item.seq) for item in items)
                mine.ack(*items)

    together(staged, work)
    for group in range(GROUPS):
        seqs = [seq for of, seq in done if of == group]
        assert seqs == sorted(seqs)


PAUSE = 4711
WAITS = f"select from pg_locks where locktype = 'advisory' and objid = {PAUSE} and not granted"


def test_an_item_that_arrives_while_a_receiver_looks_reaches_it(staged: Staged):
    create(staged.connection)
    received: list[Item] = []

    def receive() -> None:
        with psycopg.connect(staged.dsn, autocommit=True) as connection:
            received.extend(Client(connection, "c").receive(10))

    [defined] = staged.connection.execute("select pg_get_functiondef('pipeline.hand_out'::regproc)").fetchone() or [""]
    pausing = f"\nbegin\n perform pg_advisory_xact_lock({PAUSE});"
    staged.connection.execute(defined.replace("\nbegin", pausing, 1).encode())
    try:
        staged.connection.execute("select pg_advisory_lock(%s)", [PAUSE])
        receiver = threading.Thread(target=receive)
        receiver.start()
        eventually(lambda: staged.connection.execute(WAITS).fetchone() is not None)
        staged.moved(insert("t", id=1))
        staged.connection.execute("select pg_advisory_unlock(%s)", [PAUSE])
        receiver.join()
    finally:
        staged.connection.execute(defined.encode())
    assert [item.pk for item in received] == ["1"]


def test_a_group_waits_for_its_first_item_of_any_table_or_delay(staged: Staged):
    client = create(staged.connection, group_by=["g"])
    staged.moved(insert("t", id=1, g="a"), insert("other", id=9, g="a"), insert("t", id=2, g="b"))
    first, other = client.receive()
    assert (first.pk, other.pk) == ("1", "2")
    client.nack(first, delay="1 hour")
    assert client.receive() == []
    client.expire()
    again = {item.pk: item for item in client.receive()}
    client.ack(again["1"])
    assert [item.pk for item in client.receive()] == ["9"]


def test_a_row_that_moves_to_another_group_while_it_is_out_blocks_both(staged: Staged):
    client = create(staged.connection, group_by=["g"])
    staged.moved(insert("t", id=1, g="a"), insert("t", id=2, g="a"))
    (out,) = client.receive()
    staged.moved(update("t", id=1, g="b"), insert("t", id=3, g="b"))
    assert client.receive() == []
    client.ack(out)
    assert [item.pk for item in client.receive()] == ["2", "1"]


def test_a_long_group_is_told_apart_by_its_digest(staged: Staged):
    """An index takes no value of some 2,700 bytes that does not compress."""
    create(staged.connection, group_by=["g"])
    long = "".join(sha256(str(n).encode()).hexdigest() for n in range(200))
    staged.moved(insert("t", id=1, g=long), insert("t", id=2, g=long + "x"), insert("t", id=3, g=long))
    client = Client(staged.connection, "c")
    assert [item.pk for item in client.receive()] == ["1", "2"]
    staged.moved(delete("t", id=3))
    client.ack(*client.receive())
    groups = staged.connection.execute("select group_id from consumer_records where group_id like 'sha256:%'")
    assert {len(group) for (group,) in groups} == {7 + 64}


@pytest.mark.parametrize("collapse", [True, False], ids=["collapsing", "every change"])
def test_what_is_given_back_holds_its_place_in_its_group(staged: Staged, collapse: bool):
    client = create(staged.connection, group_by=["g"], max_deliveries=1, collapse=collapse)
    staged.moved(*(insert("t", id=number, g=1) for number in range(3)))
    for _ in range(3):
        (first,) = client.receive()
        assert (first.pk, first.deliveries) == ("0", 1)
        assert client.give_back(first) == 1
    assert client.ack(first) == 0
    client.ack(*client.receive())
    assert [item.pk for item in client.receive()] == ["1"]


def test_a_delete_stays_in_the_group_that_its_row_was_in(staged: Staged):
    client = create(staged.connection, group_by=["g"])
    staged.moved(insert("t", id=1, g="a"), insert("t", id=2, g="a"), delete("t", id=1), delete("t", id=7))
    items = client.receive()
    assert [(item.pk, item.action) for item in items] == [("1", "delete"), ("7", "delete")]
    client.ack(*items)
    assert [item.pk for item in client.receive()] == ["2"]


def test_what_has_no_group_waits_for_nobody(staged: Staged):
    client = create(staged.connection, group_by=["g"])
    staged.moved(message("a"), message("b"), insert("t", id=1), insert("t", id=2))
    assert len(client.receive()) == 4


def test_a_grouped_consumer_refuses_receivers_that_cannot_see_each_other(staged: Staged):
    create(staged.connection, group_by=["g"])
    with psycopg.connect(staged.dsn) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with pytest.raises(psycopg.errors.ActiveSqlTransaction, match="have to see each other"):
            Client(connection, "c").receive()


def test_a_receiver_that_dies_with_its_transaction_open_leaves_its_items(staged: Staged):
    client = create(staged.connection, max_unacknowledged=5)
    staged.moved(insert("t", id=1))
    dying = psycopg.connect(staged.dsn)
    assert len(Client(dying, "c").receive()) == 1
    staged.connection.execute("select pg_terminate_backend(%s)", [dying.info.backend_pid])
    items = eventually(client.receive)
    assert [(item.pk, item.deliveries) for item in items] == [("1", 1)]
    dying.close()


def test_who_may_only_execute_receives_and_acknowledges_but_reads_no_table(staged: Staged):
    create(staged.connection)
    staged.moved(insert("t", id=1))
    role = unique("worker")
    staged.connection.execute(f"create role {role}")
    try:
        check_role(staged, role)
    finally:
        staged.connection.execute("reset role")
        staged.connection.execute(f"drop owned by {role}; drop role {role}")


def check_role(staged: Staged, role: str) -> None:
    staged.connection.execute(f"""
        grant usage on schema pipeline to {role};
        grant execute on function pipeline.receive, pipeline.ack to {role};
        set role {role};
    """)
    client = Client(staged.connection, "c")
    assert client.ack(*client.receive()) == 1
    for query in (
        "select from public.consumer_records",
        "select from pipeline.consumers",
        "select from pipeline.events",
        "select pipeline.nack('c', '{}')",
        "select pipeline.hand_out(null, 1, '1 s')",
        "select pipeline.give_back('c', '{}')",
        "select pipeline.visibility_of('c')",
        "select pipeline.drop_consumer('c')",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            staged.connection.execute(query)


def test_who_listens_is_told_when_there_may_be_something(staged: Staged):
    client = create(staged.connection, group_by=["g"])
    with listening(staged) as told:
        assert told(lambda: staged.moved(insert("t", id=1, g=1)))
        assert told(lambda: client.nack(*client.receive(), delay="0"))
        items = client.receive()
        assert told(lambda: staged.moved(update("t", id=1, g=1)))
        assert told(lambda: client.ack(*items))
        assert told(lambda: client.give_back(*client.receive()))
        assert told(lambda: client.ack(*client.receive()))
        for call in ("pause_consumer('c')", "resume_consumer('c')", "reset_consumer('c')"):
            assert told(lambda call=call: staged.connection.execute(f"select pipeline.{call}"))  # type: ignore[misc]


@pytest.mark.parametrize("collapse", [True, False], ids=["collapsing", "every change"])
def test_who_waits_behind_a_truncate_is_told_when_it_is_settled(staged: Staged, collapse: bool):
    client = create(staged.connection, collapse=collapse)
    staged.moved(truncate("t"), insert("t", id=1))
    (emptied,) = client.receive()
    with listening(staged) as told:
        assert told(lambda: client.ack(emptied))
