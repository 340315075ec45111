"""Pages of a session's snapshot: the rows as they were at init, however they are asked for, and plain refusals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.fixtures.delta_stream import values
from tests.fixtures.wire_place import SECRET, Place

pytestmark = pytest.mark.xdist_group("pgdeltastream")
FAILED = '{"error":"unable to get snapshot data"}'
UNAVAILABLE = '{"error":"snapshot not available: call /init to initialize a new slot and snapshot"}'
INVALID = '{"error":"invalid input JSON"}'
NO_COLUMN = "{\"error\":\"required field 'column' missing in 'order_by'\"}"
NO_ORDER = "{\"error\":\"order_by order direction can only be either 'ASC' or 'DESC'\"}"
ROWS = 1000


@pytest.fixture(scope="module")
def table(place: Place) -> str:
    rows = f"select n, 'name' || n, n % 7 from generate_series(1, {ROWS}) n"
    return place.table("id int primary key, name text, grp int", rows)


@pytest.fixture(scope="module")
def mixed(place: Place) -> Iterator[str]:
    place.source.execute('create table "Mixed Case" (id int primary key, "Quoted Column" text)')
    place.source.execute("""insert into "Mixed Case" values (1, 'b'), (2, 'a')""")
    yield '"Mixed Case"'
    place.source.execute('drop table "Mixed Case"')


@pytest.fixture(scope="module")
def odd(place: Place) -> str:
    """Values that JSON has no number for, and others."""
    return place.table(
        "id int primary key, f float8, big int8, exact numeric(12, 3), yes bool, doc jsonb, raw bytea, many int[]",
        "values (1, 'NaN', 9007199254740993, 12.340, true, '{\"a\": [1, null]}', '\\xdead', '{1,2}'),"
        " (2, '-Infinity', -1, null, null, null, null, null)",
    )


@pytest.fixture(scope="module")
def slot(place: Place, table: str, mixed: str, odd: str) -> str:
    """A session from after these tables were filled; its stream never begins."""
    return place.client.init()


def test_the_original_guides_request_gives_rows_with_sorted_keys(place: Place, table: str, slot: str) -> None:
    body = {"table": table, "offset": 0, "limit": 5}
    as_curl = {"content-type": "application/x-www-form-urlencoded"}
    answer = place.client.http.post(
        "/v1/snapshot/data", content=json.dumps({"slotName": slot, **body}), headers=as_curl
    )
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json; charset=utf-8"
    assert [list(row) for row in answer.json()] == 5 * [["grp", "id", "name"]]
    newest = place.client.http.post("/v1/snapshot/data", content=json.dumps(body))
    assert newest.json() == answer.json(), "without a slotName it is the newest session's"


def test_rows_come_in_the_order_that_is_asked_for(place: Place, table: str, slot: str) -> None:
    for given, direction in (("ASC", 1), ("asc", 1), ("DESC", -1), ("desc", -1)):
        rows = place.client.rows(table, slot, limit=3, order_by={"column": "id", "order": given})
        assert [row["id"] for row in rows] == ([1, 2, 3] if direction == 1 else [ROWS, ROWS - 1, ROWS - 2])


def test_pages_read_side_by_side_are_the_whole_table_once(place: Place, table: str, slot: str) -> None:
    by_id = {"column": "id", "order": "ASC"}
    with ThreadPoolExecutor(10) as pool:
        pages = pool.map(lambda n: place.client.rows(table, slot, offset=100 * n, limit=100, order_by=by_id), range(10))
        assert [row["id"] for page in pages for row in page] == list(range(1, ROWS + 1))
    assert place.client.rows(table, slot, offset=ROWS + 1, order_by=by_id) == []
    assert place.client.rows(table, slot, limit=0) == []
    everything = place.client.rows(table, slot, limit=10**12, order_by=by_id)
    assert [row["id"] for row in everything] == list(range(1, ROWS + 1))
    assert place.client.rows(table, slot, offset=10**12) == []


def test_values_are_as_on_the_stream_and_json_is_nested(place: Place, odd: str, slot: str) -> None:
    answer = place.client.page(odd, slotName=slot, order_by={"column": "id", "order": "ASC"})
    assert answer.status_code == 200, answer.text
    assert answer.text.startswith('[{"big":9007199254740993,"doc":{"a": [1, null]},"exact":12.340,"f":null,"id":1,')
    first, second = answer.json()
    assert first["doc"] == {"a": [1, None]}
    assert (first["raw"], first["many"], first["yes"]) == ("dead", "{1,2}", True)
    assert set(second.values()) == {2, -1, None}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("no json", INVALID),
        ("", INVALID),
        ("[]", INVALID),
        ('{"offset":0,"limit":1}', INVALID),
        ('{"table":"","offset":0,"limit":1}', INVALID),
        ('{"table":"x","limit":1}', INVALID),
        ('{"table":"x","offset":0}', INVALID),
        ('{"table":"x","offset":"0","limit":1}', INVALID),
        ('{"table":"x","offset":0,"limit":"1"}', INVALID),
        ('{"table":"x","offset":-1,"limit":1}', INVALID),
        ('{"table":"x","offset":0,"limit":-1}', INVALID),
        ('{"table":5,"offset":0,"limit":1}', INVALID),
        ('{"table":"x","offset":0,"limit":1.5}', INVALID),
        ('{"table":"x","offset":0,"limit":1,"order_by":{}}', NO_COLUMN),
        ('{"table":"x","offset":0,"limit":1,"order_by":{"column":"","order":"ASC"}}', NO_COLUMN),
        ('{"table":"x","offset":0,"limit":1,"order_by":{"order":"up"}}', NO_COLUMN),
        ('{"table":"x","offset":0,"limit":1,"order_by":{"column":"id"}}', NO_ORDER),
        ('{"table":"x","offset":0,"limit":1,"order_by":{"column":"id","order":"up"}}', NO_ORDER),
    ],
)
def test_a_body_that_is_wrong_gets_400_and_says_how(place: Place, slot: str, body: str, said: str) -> None:
    answer = place.client.http.post("/v1/snapshot/data", content=body)
    assert (answer.status_code, answer.text) == (400, said)
    assert answer.headers["content-type"] == "application/json; charset=utf-8"


def test_unknown_keys_and_an_order_by_of_null_are_as_if_absent(place: Place, table: str, slot: str) -> None:
    assert place.client.page(table, limit=1, slotName=slot, order_by=None, colour="red").status_code == 200


def test_wrong_paths_and_methods_get_404_in_plain_text(place: Place) -> None:
    http = place.client.http
    for answer in (
        http.post("/v1/init"),
        http.get("/v1/snapshot/data"),
        http.post("/v1/lr/stream"),
    ):
        assert (answer.status_code, answer.text.strip()) == (404, "404 page not found")
        assert answer.headers["content-type"].startswith("text/plain")


def test_a_session_that_is_not_there_gets_503(place: Place, table: str) -> None:
    answer = place.client.page(table, slotName="delta_face100")
    assert (answer.status_code, answer.text) == (503, UNAVAILABLE)


@pytest.mark.parametrize(
    "named",
    [
        "(select 1) q",
        "(select 1 as one) q",
        "{table}; drop table {table}",
        "{table} where id = 1 --",
        "no_such_table",
        "pg_catalog.pg_authid",
        "pg_authid",
        "pipeline.sessions",
        "a.b.c.d",
        "x" * 70_000,
        "nul\0",
        '"',
    ],
    ids=lambda name: name[:20],
)
def test_what_is_no_published_table_is_refused_and_runs_nothing(place: Place, named: str, slot: str) -> None:
    target = place.table("id int primary key", "values (1)")
    answer = place.client.page(named.replace("{table}", target), slotName=slot)
    assert (answer.status_code, answer.text) == (500, FAILED)
    assert place.source.execute(f"select count(*) from {target}".encode()).fetchone() == (1,)


@pytest.mark.parametrize("column", ["id; drop table t", "(select 1)", "1", "no_such", "id, name", 'id" --'])
def test_what_is_no_column_is_refused_and_spoils_nothing(place: Place, table: str, slot: str, column: str) -> None:
    answer = place.client.page(table, slotName=slot, order_by={"column": column, "order": "ASC"})
    assert (answer.status_code, answer.text) == (500, FAILED)
    assert len(place.client.rows(table, slot)) == ROWS


def test_names_in_mixed_case_are_reached_by_their_quoted_name(place: Place, mixed: str, slot: str) -> None:
    for name in (mixed, f"public.{mixed}", f'"public".{mixed}'):
        for column in ('"Quoted Column"', "Quoted Column"):
            rows = place.client.rows(name, slot, order_by={"column": column, "order": "ASC"})
            assert [row["id"] for row in rows] == [2, 1]


def test_twenty_requests_at_once_all_answer_though_some_are_wrong(place: Place, table: str, slot: str) -> None:
    with ThreadPoolExecutor(30) as pool:
        names = [table if number % 3 else "no_such_table" for number in range(30)]
        statuses = list(pool.map(lambda name: place.client.page(name, slotName=slot).status_code, names))
    assert statuses == [200 if name == table else 500 for name in names]


def test_changes_after_init_are_only_on_the_stream(place: Place) -> None:
    table = place.table("id int primary key, note text", f"values (1, '{SECRET}'), (2, 'two')")
    slot = place.client.init()
    place.source.execute(f"insert into {table} values (3, '{SECRET}'); delete from {table} where id = 2".encode())
    assert sorted(row["id"] for row in place.client.rows(table, slot)) == [1, 2]
    with place.client.stream(slot) as line:
        inserted, deleted = line.changes()
        assert values(inserted) == {"id": 3, "note": SECRET}
        assert (deleted["kind"], deleted["oldkeys"]["keyvalues"]) == ("delete", [2])
        assert line.is_quiet()
        over = place.client.page(table, slotName=slot)
        assert (over.status_code, over.text) == (500, FAILED)


def test_each_session_reads_the_rows_of_its_own_moment(place: Place) -> None:
    table = place.table("id int primary key", "values (1)")
    first = place.client.init()
    place.source.execute(f"insert into {table} values (2)".encode())
    second = place.client.init()
    place.source.execute(f"delete from {table}".encode())
    for _ in range(2):
        assert sorted(row["id"] for row in place.client.rows(table, second)) == [1, 2]
        assert [row["id"] for row in place.client.rows(table, first)] == [1]
    assert len(place.client.page(table).json()) == 2, "the newest"


def test_a_table_that_is_dropped_or_changed_after_init_harms_no_other(place: Place, table: str) -> None:
    doomed = place.table("id int primary key", "values (1)")
    slot = place.client.init()
    with psycopg.connect(place.source_dsn, autocommit=True) as other:
        other.execute(f"drop table {doomed}".encode())
    assert place.client.page(doomed, slotName=slot).text == FAILED
    assert len(place.client.rows(table, slot)) == ROWS
