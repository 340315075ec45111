"""Why a source cannot have a session: the client gets the wire's one error, the log one plain sentence."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from pipeline.config import settings
from tests.fixtures.api import Api
from tests.fixtures.delta_stream import Client
from tests.fixtures.postgres import Cluster, free_port, unique
from tests.fixtures.waiting import eventually
from tests.fixtures.wire_place import Place, drop_slots

pytestmark = pytest.mark.xdist_group("pgdeltastream")
REFUSED = '{"error":"unable to init session"}'
Refusal = Callable[[], str]


def slots(place: Place) -> int:
    row = place.source.execute("select count(*) from pg_replication_slots").fetchone()
    assert row is not None
    return int(row[0])


def end_sessions(place: Place) -> None:
    """Those of earlier tests are ended by the server once their slots are gone."""
    drop_slots(place.source)
    eventually(lambda: place.log.execute("select from pipeline.sessions where state <> 'ended'").rowcount == 0)


@pytest.fixture
def refused(place: Place) -> Refusal:
    """Init at the server that runs must fail and leave no slot; what its log says of it. No session makes room."""
    end_sessions(place)

    def ask() -> str:
        before, said = slots(place), len(place.server.log())
        answer = place.client.http.get("/v1/init")
        assert (answer.status_code, answer.text) == (500, REFUSED)
        assert slots(place) == before

        def lines() -> list[str]:
            return [line for line in place.server.log()[said:].splitlines() if "session.refused" in line]

        eventually(lines)
        assert len(lines()) == 1, place.server.log()[said:]
        return lines()[0]

    return ask


@contextmanager
def elsewhere(place: Place, source_dsn: str, sessions_max: int = 40) -> Iterator[Api]:
    """The API of the same server as if its source were reached by another DSN."""
    config = settings.load(
        source_dsn=source_dsn,
        database_dsn=place.log.info.dsn,
        slot=place.slot,
        http_port=free_port(),
        export_schedule="off",
        wires="pgdeltastream",
        sessions_max=sessions_max,
    )
    with Api(config) as api:
        yield api


def refused_there(
    place: Place, dsn: str, caplog: pytest.LogCaptureFixture, sessions_max: int = 40, full: str | None = None
) -> str:
    """`full`: what the client is told, as a pattern, if there are as many sessions as there may be."""
    before = slots(place)
    caplog.clear()
    with caplog.at_level(logging.INFO), elsewhere(place, dsn, sessions_max) as api:
        answer = api.client.get("/v1/init")
    assert answer.status_code == (500 if full is None else 503)
    assert answer.text == REFUSED if full is None else re.fullmatch(full, answer.json()["error"])
    assert slots(place) == before
    said = [record.getMessage() for record in caplog.records if getattr(record, "action", None) == "session.refused"]
    assert len(said) == 1, caplog.text
    return said[0]


def test_the_last_free_slot_is_left_to_the_server(place: Place, cluster: Cluster, refused: Refusal) -> None:
    row = place.source.execute(
        "select current_setting('max_replication_slots')::int - count(*) from pg_replication_slots"
    ).fetchone()
    assert row is not None
    names = [unique("filler") for _ in range(row[0] - 1)]
    try:
        for name in names:
            place.source.execute("select pg_create_physical_replication_slot(%s)", [name])
        assert "max_replication_slots" in refused()
    finally:
        for name in names:
            place.source.execute("select pg_drop_replication_slot(%s)", [name])


def test_the_last_free_walsender_is_left_to_the_server(place: Place, cluster: Cluster, refused: Refusal) -> None:
    free = "select current_setting('max_wal_senders')::int - count(*) > 1 from pg_stat_replication"
    with ExitStack() as stack:
        eventually(lambda: not _streams(place))  # who has left is not counted
        while place.source.execute(free).fetchone() == (True,):
            physical = make_conninfo(cluster.dsn("postgres"), replication="true")
            stack.enter_context(psycopg.connect(physical, autocommit=True))
        assert "max_wal_senders" in refused()


def _streams(place: Place) -> int:
    query = "select from pg_stat_replication where application_name like 'pipeline session delta%'"
    query += " and state <> 'startup'"  # as who keeps a snapshot open is
    return place.source.execute(query).rowcount


def test_without_the_right_to_replicate(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    name = unique("role")
    place.source.execute(sql.SQL("create role {} login").format(sql.Identifier(name)))
    try:
        said = refused_there(place, make_conninfo(place.source_dsn, user=name), caplog)
        assert "replicat" in said, said
    finally:
        place.source.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))


def test_a_source_whose_transactions_are_read_only_by_default_gives_one(place: Place) -> None:
    dsn = make_conninfo(place.source_dsn, options="-c default_transaction_read_only=on")
    table = place.table("id int primary key", "values (1)")
    with elsewhere(place, dsn) as api:
        slot = api.client.get("/v1/init").json()["slotName"]
        with Client(api.config.http_port).stream(slot) as line:
            place.source.execute(f"insert into {table} values (2)".encode())
            assert [change["columnvalues"] for change in line.changes()] == [[2]], "the table was published"


def test_a_source_that_is_not_there(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    dsn = make_conninfo(place.source_dsn, host="127.0.0.1", port=str(free_port()), password="geheim-28-sentinel")
    said = refused_there(place, dsn, caplog)
    assert "refused" in said
    assert "geheim" not in caplog.text


def test_beyond_the_maximum_nobody_who_was_here_lately_is_sent_away(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    end_sessions(place)
    slot = place.client.init()
    place.client.post(table="none", offset=0, limit=0, slotName=slot)  # it is kept for a minute
    kept = rf"PIPELINE_SESSIONS_MAX = 1 is reached: {slot} is kept until 20\S+ \S+ UTC"
    full = f"unable to init session: {kept}"
    assert re.search(kept, refused_there(place, place.source_dsn, caplog, sessions_max=1, full=full))


@pytest.mark.long
def test_a_transaction_that_stays_open_is_named_after_half_a_minute(place: Place, refused: Refusal) -> None:
    table = place.table("id int primary key")
    with psycopg.connect(place.source_dsn) as holder:
        holder.execute(f"insert into {table} values (1)".encode())
        pid = holder.info.backend_pid
        said = refused()
        assert str(pid) in said, said
        holder.rollback()
    place.client.init()
