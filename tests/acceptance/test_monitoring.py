"""Dashboard and alerts in a real Prometheus: each query has a value, each alert fires by its cause and by no other."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import psycopg
import pytest

from tests.fixtures import monitored
from tests.fixtures.failing_over import ask
from tests.fixtures.monitored import FOR_SECONDS, SCRAPE_SECONDS, Monitored
from tests.fixtures.postgres import Cluster
from tests.fixtures.proxies import frozen, gone
from tests.fixtures.server import ROOT
from tests.fixtures.waiting import eventually

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("monitoring"),
    pytest.mark.skipif(monitored.PROGRAM is None, reason="Debian's prometheus is not installed, so nothing is scraped"),
]
FIRING_SECONDS = 120
"""The most seconds from a cause to its alert; the hosts of the source are asked every 30 s."""
SETTLED_SECONDS = FOR_SECONDS + 2 * SCRAPE_SECONDS
"""Seconds after which a condition that holds has fired."""
PROMISED = 2.5
"""Seconds in which `/metrics` answers."""
LATER = "alter table sequin_events add constraint refused check ({}) not valid"
ACK = "select pipeline.ack('work', array_agg(ack_id)) from pipeline.receive('work', 10)"
REMOVED = "alter table sequin_events drop constraint refused"


@pytest.fixture(scope="module")
def watched(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Monitored]:
    with ExitStack() as stack:
        made = Monitored(stack, cluster, tmp_path_factory.mktemp("monitored"))
        made.wait_until_quiet()
        yield made


@contextmanager
def refused(watched: Monitored, condition: str, statement: str) -> Iterator[None]:
    """Make a change that the log refuses by this condition."""
    watched.log.execute(LATER.format(condition).encode())
    watched.change(statement)
    yield
    watched.log.execute(REMOVED)


@contextmanager
def parked(watched: Monitored) -> Iterator[None]:
    with refused(watched, "record ->> 'v' is distinct from 'bad'", "insert into t values (10, 'bad')"):
        yield
    watched.command("dead-letters", "retry", "--all")


def not_written(watched: Monitored) -> AbstractContextManager[None]:
    """Refuse also the event that would take the place of a parked change."""
    return refused(watched, "record_pk <> '20'", "insert into t values (20, 'refused')")


@contextmanager
def late(watched: Monitored) -> Iterator[None]:
    with watched.log.transaction():
        watched.log.execute("lock table sequin_events in share mode")
        watched.change("insert into t values (30, 'late')")
        yield


@contextmanager
def no_server(watched: Monitored) -> Iterator[None]:
    for server in watched.servers:
        server.kill()
    yield
    watched.start()


@contextmanager
def no_leader(watched: Monitored) -> Iterator[None]:
    """Kill the server that leads; the other takes over."""
    leader = watched.leader()
    leader.kill()
    yield
    watched.restart(leader)


@contextmanager
def much_wal(watched: Monitored) -> Iterator[None]:
    """Let a transaction stay open for which the slot keeps more than three quarters of the WAL that it may."""
    with psycopg.connect(watched.pair.primary.tcp_dsn("postgres")) as source:
        source.execute("insert into t values (40, 'open')")
        for _ in range(9):
            watched.change("select pg_switch_wal(), pg_logical_emit_message(false, 'filler', repeat('x', 1000000))")
        yield
        source.rollback()
    watched.change("select pg_log_standby_snapshot()")


@contextmanager
def incomplete(watched: Monitored) -> Iterator[None]:
    watched.change("create table no_key (n int)")
    yield
    watched.change("drop table no_key")


@contextmanager
def rewritten(watched: Monitored) -> Iterator[None]:
    watched.change("alter table t add column at timestamptz default clock_timestamp()")
    yield
    watched.command("backfill", "start", "public.t", "--differences", "--wait")


@contextmanager
def no_lake(watched: Monitored) -> Iterator[None]:
    lake, away = watched.folder / ".pipeline" / "exports", watched.folder / "away"
    lake.rename(away)
    lake.touch()
    watched.change("insert into t values (50, 'exported')")
    watched.ask_for_export()
    yield
    lake.unlink()
    away.rename(lake)
    watched.export()


@contextmanager
def no_worker(watched: Monitored) -> Iterator[None]:
    """Add an item that no worker receives."""
    watched.change("insert into jobs values (1)")
    yield
    watched.log.execute(ACK)


@contextmanager
def dead_items(watched: Monitored) -> Iterator[None]:
    watched.change("insert into jobs values (2)")
    receive = "select from pipeline.receive('work', 10, visibility => '10 ms')"

    def is_dead() -> bool:
        watched.log.execute(receive)
        return watched.log.execute("select from consumer_records where state = 'dead'").rowcount == 1

    eventually(is_dead)
    yield
    watched.log.execute("select pipeline.discard_dead('work')")


@contextmanager
def stopped_follower(watched: Monitored) -> Iterator[None]:
    watched.there.execute("alter table followed add constraint refused check (v <> 'bad')")
    watched.change("insert into followed values (1, 'bad')")
    yield
    watched.there.execute("alter table followed drop constraint refused")  # it tries again by itself


@contextmanager
def no_copies(watched: Monitored) -> Iterator[None]:
    for statement in ("alter system set sync_replication_slots = off", "select pg_reload_conf()"):
        ask(watched.pair.standby, statement)
    yield
    for statement in ("alter system set sync_replication_slots = on", "select pg_reload_conf()"):
        ask(watched.pair.standby, statement)


@contextmanager
def no_slot(watched: Monitored) -> Iterator[None]:
    """Drop the slot: a server whose slot is lost ends, and so does the one that takes over."""
    watched.lose_the_slot()
    yield
    for server in watched.servers:
        server.close()
    watched.command("sources", "adopt", "--yes")
    watched.start()
    watched.pair.wait_until_synced(watched.slot)


CAUSES: tuple[tuple[str | None, Callable[[Monitored], AbstractContextManager[None]]], ...] = (
    (None, no_leader),
    ("ServerDown", no_server),
    ("DatabaseDown", lambda watched: gone(watched.database)),
    ("DatabaseDown", lambda watched: frozen(watched.database)),
    ("DatabaseDown", lambda watched: gone(watched.database, watched.source)),
    ("DatabaseDown", lambda watched: frozen(watched.database, watched.source)),
    ("SourceDown", lambda watched: gone(watched.source)),
    ("SourceDown", lambda watched: frozen(watched.source)),
    ("NotReplicating", not_written),
    ("Late", late),
    ("SlotKeepsWal", much_wal),
    ("ChangesParked", parked),
    ("TablesIncomplete", incomplete),
    ("TablesIncomplete", rewritten),
    ("ScheduleFailed", no_lake),
    ("ConsumerStuck", no_worker),
    ("ConsumerStuck", dead_items),
    ("FollowerStopped", stopped_follower),
    ("NoFailover", no_copies),
    ("ServerDown", no_slot),
)


def test_each_query_of_the_dashboard_has_a_value(watched: Monitored) -> None:
    panels = json.loads((ROOT / "deploy" / "grafana" / "pipeline.json").read_text())["panels"]
    queries = [target["expr"].replace("$__rate_interval", "1m") for panel in panels for target in panel["targets"]]
    watched.change("insert into jobs values (3)")

    def missing() -> None:
        assert [query for query in queries if not watched.prometheus.query(query)] == []

    eventually(missing)
    watched.log.execute(ACK)


@pytest.mark.parametrize(("alert", "cause"), CAUSES)
def test_each_alert_fires_by_its_cause_alone(
    alert: str | None, cause: Callable[[Monitored], AbstractContextManager[None]], watched: Monitored
) -> None:
    watched.wait_until_quiet()
    began, expected = time.time(), {alert} if alert else set()
    with cause(watched):
        if alert in ("SourceDown", "DatabaseDown"):
            assert watched.scrape_seconds() < PROMISED
        eventually(lambda: watched.prometheus.fired(began) >= expected, FIRING_SECONDS)
        fired = time.time()
        eventually(lambda: time.time() - fired > SETTLED_SECONDS)
        assert watched.prometheus.fired(began) == expected
    watched.wait_until_quiet()
