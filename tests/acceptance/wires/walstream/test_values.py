"""Values as the source has them: nothing is guessed from texts, no digit is lost, what is not known is left out."""

from __future__ import annotations

import json

import pytest

from tests.fixtures.grpc_place import SECRET, Place, of, warnings
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.xdist_group("walstream")
COLUMNS = """
    id bigint primary key, "Zeh" text, yes boolean, no boolean, price numeric, large numeric, big bigint,
    small smallint, half double precision, nothing text, doc json, docb jsonb, number jsonb, list int[], words text[],
    at timestamptz, plain timestamp, day date, raw bytea, id2 uuid, odd numeric, "ä" text
"""
VALUES = """
    9007199254740993, '007', true, false, 1.10, 123456789012345678901234567890.10, 9223372036854775807, -3,
    0.5, null, '{"b": 1,  "a": [true]}', '{"b": 1, "a": 1.10}', '1.50', '{1,2,null}', '{a,"b c"}',
    '2026-03-01 12:30:00.5+02', '2026-03-01 12:30:00', '2026-03-01', '\\x00ff',
    'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'NaN', '+15551234567'
"""
TEXTS = {
    "id": "9007199254740993",
    "Zeh": '"007"',
    "yes": "true",
    "no": "false",
    "price": "1.10",
    "large": "123456789012345678901234567890.10",
    "big": "9223372036854775807",
    "small": "-3",
    "half": "0.5",
    "nothing": "null",
    "number": "1.50",
    "ä": '"+15551234567"',
    "id2": '"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"',
    "odd": '"NaN"',
    "day": '"2026-03-01"',
}
"""What must stand there, to the character."""


def test_values_by_type(place: Place) -> None:
    table = place.table(COLUMNS)
    with place.client() as client:
        place.run(f"set timezone = 'UTC'; insert into {table} values ({VALUES})")
        (event,) = of(client, table, 1)
        values = event.values
        assert list(values) == sorted(values, key=str.encode), "sorted by bytes"
        assert event.text.startswith('{"Zeh":"007","at":'), "compact"
        for name, text in TEXTS.items():
            assert f"{json.dumps(name, ensure_ascii=False)}:{text}" in event.text, name
        assert values["doc"] == '{"b": 1,  "a": [true]}', "a text, as Postgres prints it"
        assert values["docb"] == '{"a": 1.10, "b": 1}'
        for name in ("list", "words", "raw", "at", "plain"):
            assert isinstance(values[name], str), name
        assert (values["list"], values["words"], values["raw"]) == ("{1,2,NULL}", '{a,"b c"}', "\\x00ff")
        assert (values["at"][:19], values["plain"][:10]) == ("2026-03-01 10:30:00", "2026-03-01")


def test_an_unchanged_long_value_is_left_out_or_told_but_never_null(place: Place) -> None:
    table = place.table("id int primary key, long text, note text")
    place.run(f"alter table {table} alter long set storage external")
    with place.client() as client:
        place.run(f"insert into {table} values (1, repeat('x', 9000), 'a')", f"update {table} set note = 'b'")
        inserted, updated = of(client, table, 2)
        assert (updated.kind, updated.values["note"]) == ("update", "b")
        assert updated.values.get("long", inserted.values["long"]) == "x" * 9000


def test_a_delete_has_what_the_wal_has(place: Place) -> None:
    keyed, full = (place.table("id int primary key, note text") for _ in range(2))
    place.run(f"alter table {full} replica identity full")
    with place.client() as client:
        for table in (keyed, full):
            place.run(f"insert into {table} values (1, 'a')", f"delete from {table}")
        assert [event.text for event in of(client, keyed, 2)] == ['{"id":1,"note":"a"}', '{"id":1}']
        assert [event.text for event in of(client, full, 2)] == ['{"id":1,"note":"a"}'] * 2


def test_a_table_without_a_key(place: Place) -> None:
    table = place.table("note text")
    with place.client() as client:
        place.run(f"insert into {table} values ('a'), ('a')")
        assert [event.text for event in of(client, table, 2)] == ['{"note":"a"}'] * 2
        place.run(f"update {table} set note = 'b'", f"insert into {table} values ('c')")
        kinds = {event.text: event.kind for event in of(client, table, 1)}
        assert kinds in ({'{"note":"c"}': "insert"}, {'{"note":"b"}': "update"})


def test_two_tables_that_are_truncated_together(moving: Place) -> None:
    first, second = moving.table(rows="values (1)"), moving.table(rows="values (1)")
    with moving.client() as client:
        moving.run(f"truncate {first}, {second}")
        found = [client.next() for _ in range(2)]
        while found[-1].kind != "truncate" or found[-2].kind != "truncate":
            found.append(client.next())
        assert {event.table for event in found[-2:]} == {f"public.{first}", f"public.{second}"}
        assert found[-1].lsn == found[-2].lsn
        for event in found:
            client.ack(event.lsn)
        moving.settled()


def test_a_row_of_five_megabytes_is_sent_without_its_largest_value(moving: Place) -> None:
    table = moving.table("id int primary key, long text, note text")
    before = moving.number("select count from pipeline.wire_counters where name = 'shortened'")
    with moving.client() as client:
        moving.run(
            f"insert into {table} values (1, repeat('{SECRET} ', 300000), 'a')", f"insert into {table} values (2)"
        )
        large, later = of(client, table, 2)
        assert large.text == '{"id":1,"note":"a"}'
        assert later.text == '{"id":2,"long":null,"note":null}'
        moving.settled()
    counted = "select count from pipeline.wire_counters where name = 'shortened'"
    eventually(lambda: moving.number(counted) == before + 1)
    said = [each["message"] for each in warnings(moving.server, "walstream.shortened")]
    assert any(f"of public.{table} went out without long" in sentence for sentence in said), said
    shown = f"pipeline_walstream_shortened_total {before + 1:.1f}"
    eventually(lambda: shown in moving.server.get("/metrics").text)
