"""Every part of the way from the source to a consumer is slowed down, and the status names it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from pipeline.operate.lag.reader_causes import HELD_BYTES
from pipeline.postgres import connections
from tests.fixtures.lagging import PATIENCE, Lagging
from tests.fixtures.postgres import free_port
from tests.fixtures.waiting import eventually

STAGES = ["decoded", "received", "staged", "shuffled"]
SPILLED = "select spill_bytes from pg_stat_replication_slots where slot_name = 'lagging'"


@pytest.fixture(scope="module")
def lagging(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lagging]:
    with ExitStack() as stack:
        made = Lagging(stack, tmp_path_factory.mktemp("lagging"))
        made.recover()
        yield made
        print(made.serving.log())


@pytest.fixture(autouse=True)
def healthy(lagging: Lagging) -> Iterator[None]:
    """Before each test nothing limits, since it is so after each."""
    yield
    lagging.recover()


def test_up_to_date(lagging: Lagging) -> None:
    lagging.write()
    lagging.recover()

    def at_the_end() -> None:
        found = lagging.lag()
        assert [stage.stage for stage in found.stages] == STAGES
        assert [stage.behind_bytes for stage in found.stages] == [0] * 4
        assert [stage.behind_seconds for stage in found.stages] == [0] * 4
        assert {stage.lsn for stage in found.stages} == {found.written_lsn}

    eventually(at_the_end)


def test_the_numbers_of_one_status_agree(lagging: Lagging, monkeypatch: pytest.MonkeyPatch) -> None:
    """They come from one look at the source, while it goes on writing."""
    asked: list[str] = []
    connect = connections.connect

    def counting(dsn: str, what: str, **options: Any) -> connections.Connection:
        asked.append(what)
        return connect(dsn, what, **options)

    monkeypatch.setattr(connections, "connect", counting)
    for _ in range(8):
        lagging.write(200, 100)
        now = lagging.now()
        assert now.lag is not None and now.source_lsn is not None and now.confirmed_lsn is not None
        shuffled, (slot,) = now.lag.stage("shuffled"), now.slots
        assert shuffled is not None
        assert now.lag.written_lsn == now.source_lsn
        assert (slot.confirmed_lsn, slot.lag_bytes) == (now.confirmed_lsn, now.source_lsn - now.confirmed_lsn)
        assert (now.lag_bytes, shuffled.lsn) == (shuffled.behind_bytes, now.source_lsn - shuffled.behind_bytes)
        assert (now.retained_bytes or 0) >= now.source_lsn - now.confirmed_lsn
    assert asked.count("source") == 8


def test_the_versions_are_read_before_the_connection_to_the_source_closes(lagging: Lagging) -> None:
    now = lagging.now()
    assert now.source_version == now.pipeline_version
    assert str(now.source_version).startswith("18")


def test_a_worker_that_stands_still(lagging: Lagging) -> None:
    with lagging.frozen("replication"):
        limit = lagging.limited_by("worker", "has been silent for")
        assert limit.remedy

        def nothing_else() -> None:
            found = lagging.lag()
            staged, shuffled = found.stage("staged"), found.stage("shuffled")
            assert staged is not None and shuffled is not None
            assert staged.behind_bytes > 0 and staged.behind_seconds
            assert (shuffled.own_bytes, shuffled.own_seconds) == (0, 0)

        eventually(nothing_else)
        assert (now := lagging.now()).lag is not None and now.lag_seconds
        assert 'pipeline_lag_limited_by{part="worker"} 1.0' in lagging.serving.get("/metrics").text


def test_a_network_through_which_nothing_comes(lagging: Lagging) -> None:
    name = lagging.sender_name
    lagging.proxy.freeze(name)
    try:
        lagging.limited_by("network")

        def all_is_sent() -> None:
            found = lagging.lag()
            decoded, received = found.stage("decoded"), found.stage("received")
            assert decoded is not None and received is not None
            assert (decoded.own_bytes, received.own_bytes > 0) == (0, True)

        eventually(all_is_sent)
        lagging.write(40_000, 1_000)  # more than the buffers of the connection take
        lagging.limited_by("network", f"its walsender (pid {lagging.walsender}) waits until it can send more")
    finally:
        lagging.proxy.thaw(name)


def test_a_walsender_that_decodes_a_large_transaction(lagging: Lagging) -> None:
    with psycopg.connect(lagging.cluster.dsn("shop")) as writer:
        (before,) = lagging.source.execute(SPILLED).fetchone() or (0,)
        writer.execute("insert into t (v) select repeat('x', 100) from generate_series(1, 20000)")
        eventually(lambda: (lagging.source.execute(SPILLED).fetchone() or (0,))[0] > before)
        with lagging.walsender_frozen():
            writer.commit()
            limit = lagging.limited_by("decoding", f"the walsender (pid {lagging.walsender}) is behind, with ")
    assert "logical_decoding_work_mem" in limit.remedy


def test_staging_that_waits_for_a_lock(lagging: Lagging) -> None:
    def lock() -> None:
        """The segment that is being filled."""
        lagging.write()
        filling = locker.execute("select id from pipeline.segments where state = 'filling'").fetchall()
        assert filling
        for (number,) in filling:
            locker.execute(f"lock table pipeline.wal_events_{number:05d} in access exclusive mode")

    with psycopg.connect(lagging.cluster.dsn("events"), application_name="some maintenance") as locker:
        eventually(lock)
        limit = lagging.limited_by("staging", f"pid {locker.info.backend_pid} (some maintenance)")
        assert str(locker.info.backend_pid) in limit.remedy
        found = lagging.lag().stage("staged")
        assert found is not None and found.own_bytes > 0


def test_a_shuffler_that_stands_still(lagging: Lagging) -> None:
    with lagging.frozen("shuffle"):
        lagging.limited_by("shuffle", "the shuffler has been silent for")
        found = lagging.lag().stage("shuffled")
        assert found is not None and found.own_bytes > 0 and found.own_seconds


def test_a_shuffler_that_waits_for_a_lock(lagging: Lagging) -> None:
    with psycopg.connect(lagging.cluster.dsn("events"), application_name="an analyst") as locker:
        locker.execute("lock table sequin_events in share mode")
        lagging.limited_by("shuffle", f"pid {locker.info.backend_pid} (an analyst)")


def test_a_change_that_cannot_be_written(lagging: Lagging) -> None:
    lagging.log.execute("alter table sequin_events add constraint no_bad check (record ->> 'v' <> 'bad') not valid")
    try:
        lagging.source.execute("insert into t (v) values ('bad')")
        limit = lagging.limited_by("shuffle", "no_bad")
        assert "PIPELINE_ON_POISON=park" in limit.remedy
    finally:
        lagging.log.execute("alter table sequin_events drop constraint no_bad")


def test_consumers_that_are_paused_and_behind(lagging: Lagging) -> None:
    lagging.log.execute("select pipeline.create_consumer('mailer', start => 'now')")
    lagging.log.execute("select pipeline.pause_consumer('mailer')")
    try:
        assert lagging.limited_by("consumer", "it is paused").remedy == "`pipeline consumers resume mailer`"
        found = lagging.lag()
        consumed = found.stage("consumed")
        assert consumed is not None and consumed.reader == "mailer" and consumed.own_bytes > 0
        lagging.log.execute("select pipeline.resume_consumer('mailer')")
        limit = lagging.limited_by("consumer", 'consumer "mailer" lags most')
        assert "delete mailer" in limit.remedy
    finally:
        lagging.log.execute("select pipeline.drop_consumer('mailer')")


def held(lagging: Lagging, text: str) -> None:
    """Wait until it is named, while WAL is written in another database."""
    with psycopg.connect(lagging.cluster.dsn("elsewhere"), autocommit=True) as elsewhere:

        def check() -> None:
            elsewhere.execute("select pg_logical_emit_message(false, 'noise', repeat('x', %s))", [HELD_BYTES // 5])
            elsewhere.execute("checkpoint")  # restart_lsn moves at records of running transactions only
            found = lagging.lag().limits
            assert [limit.part for limit in found] == ["transaction"], found
            assert text in found[0].text and "nothing is late because of it" in found[0].text

        eventually(check, PATIENCE)


def test_a_long_transaction_holds_wal(lagging: Lagging) -> None:
    with psycopg.connect(lagging.cluster.dsn("shop"), application_name="a report") as writer:
        writer.execute("insert into t (v) values ('late')")
        held(lagging, f"pid {writer.info.backend_pid} (a report, ")


def test_a_prepared_transaction_holds_wal(lagging: Lagging) -> None:
    with psycopg.connect(lagging.cluster.dsn("shop"), autocommit=True) as writer:
        writer.execute("begin; insert into t (v) values ('late'); prepare transaction 'forgotten'")
        held(lagging, 'transaction "forgotten" of ')
        writer.execute("commit prepared 'forgotten'")


def test_a_source_that_does_not_answer(lagging: Lagging) -> None:
    with lagging.other_source(f"postgresql://127.0.0.1:{free_port()}/shop"):
        (limit,) = lagging.lag().limits
        assert limit.part == "source" and "is not available" in limit.text


def test_who_may_not_see_walsenders_is_told_the_rest(lagging: Lagging) -> None:
    lagging.source.execute("create role modest login replication")
    with lagging.other_source(make_conninfo(lagging.config.source, user="modest")):
        assert [stage.stage for stage in lagging.lag().stages] == ["staged", "shuffled"]
