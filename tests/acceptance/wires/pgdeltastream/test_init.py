"""What init makes: a new slot and session each time, without disturbing others."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.fixtures.delta_stream import SLOT_NAME, refusal
from tests.fixtures.wire_place import Place

pytestmark = pytest.mark.xdist_group("pgdeltastream")


def test_init_gives_the_name_of_a_new_permanent_logical_slot(place: Place) -> None:
    answer = place.client.http.get("/v1/init")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json; charset=utf-8"
    name = answer.json()["slotName"]
    assert answer.text == f'{{"slotName":"{name}"}}'
    assert SLOT_NAME.fullmatch(name)
    found = place.source.execute(
        "select plugin, slot_type, temporary, database = current_database() from pg_replication_slots"
        " where slot_name = %s",
        [name],
    ).fetchone()
    assert found == ("pgoutput", "logical", False, True)


def test_a_second_init_makes_another_session_and_leaves_the_first(place: Place) -> None:
    others = ("mydelta_x", "xdelta_y", "delta_mine")
    for name in others:
        place.source.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [name])
    table = place.table("id int primary key", "values (1)")
    first, second = place.client.init(), place.client.init()
    assert first != second
    slots = {row[0] for row in place.source.execute("select slot_name from pg_replication_slots")}
    assert {first, second, *others} <= slots
    place.source.execute(f"insert into {table} values (2)".encode())
    for name in (first, second):
        with place.client.stream(name) as line:
            assert [change["columnvalues"] for change in line.changes()] == [[2]]
    for name in others:
        assert refusal(place.client, name)[0] == 4404, "only what init made is streamed"
        place.source.execute("select pg_drop_replication_slot(%s)", [name])
    assert refusal(place.client, place.slot)[0] == 4404, "nor the slot of the server itself"
    assert place.server.get("/readyz").status_code == 200


def test_four_inits_at_once_make_four_sessions_each_with_its_own_moment(place: Place) -> None:
    with ThreadPoolExecutor(4) as pool:
        names = list(pool.map(lambda _: place.client.init(), range(4)))
    assert len(set(names)) == 4
    assert all(map(SLOT_NAME.fullmatch, names))


def test_a_table_made_a_moment_before_is_in(place: Place) -> None:
    table = place.table("id int primary key, note text", "values (1, 'before')")
    slot = place.client.init()
    place.source.execute(f"insert into {table} values (2, 'after')".encode())
    assert place.client.rows(table, slot) == [{"id": 1, "note": "before"}]
    with place.client.stream(slot) as line:
        assert [change["columnvalues"] for change in line.changes()] == [[2, "after"]]
