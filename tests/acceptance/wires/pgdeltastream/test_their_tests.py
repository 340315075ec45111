"""The three tests of PG Delta Stream's own repository, as they are written there but from outside."""

from __future__ import annotations

import pytest
from websockets.exceptions import ConnectionClosed

from tests.fixtures.delta_stream import confirmed
from tests.fixtures.waiting import eventually
from tests.fixtures.wire_place import Place

pytestmark = pytest.mark.xdist_group("pgdeltastream")


@pytest.fixture
def table(place: Place) -> str:
    return place.table("id serial primary key, name text", "(name) values ('name1'), ('name2'), ('name3')")


def test_init(place: Place) -> None:
    name = place.client.init()
    row = place.source.execute(
        "select slot_name, plugin from pg_replication_slots where slot_name = %s", [name]
    ).fetchone()
    assert row == (name, "pgoutput")


def test_snapshot_data(place: Place, table: str) -> None:
    place.client.init()
    place.source.execute(f"insert into {table} (name) values ('name4'), ('name5'), ('name6')".encode())
    answer = place.client.page(table, offset=0, limit=10, order_by={"column": "id", "order": "ASC"})
    assert answer.status_code == 200
    assert answer.json() == [{"id": number, "name": f"name{number}"} for number in (1, 2, 3)]


def test_logical_replication_websocket(place: Place, table: str) -> None:
    answer = place.client.http.get("/v1/init")
    assert answer.status_code == 200
    slot = answer.json()["slotName"]
    with place.client.stream(slot) as line:
        place.source.execute(f"insert into {table} (name) values ('name4')".encode())
        frame = line.next()
        assert frame["change"][0]["kind"] == "insert"
        assert frame["change"][0]["columnvalues"][1] == "name4"
        line.ack(frame["nextlsn"])
        eventually(lambda: confirmed(place.source, slot) == frame["nextlsn"])
        place.source.execute(f"update {table} set name = 'name5' where name = 'name4'".encode())
        frame = line.next()
        assert frame["change"][0]["kind"] == "update"
        assert frame["change"][0]["columnvalues"][1] == "name5"
        line.ack(frame["nextlsn"])
        eventually(lambda: confirmed(place.source, slot) == frame["nextlsn"])
        line.line.close(1000)
        with pytest.raises(ConnectionClosed) as closed:
            line.line.recv(1)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1000
