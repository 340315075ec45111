"""GET /v1/events: pages, filters, waiting, what retention has dropped, and the plan it runs by."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL

from pipeline.api import event_pages, newest_first
from pipeline.api.event_pages import MAX_BYTES
from pipeline.api.models import MAX_SEQ
from pipeline.log import page_before, shapes
from pipeline.log.page import EVERYTHING, EventFilter, EventPageRequest, values
from tests.fixtures.api import Api
from tests.fixtures.routed_log import AUDIT, route
from tests.fixtures.small_log import add_inserts, add_table, small_log
from tests.fixtures.waiting import eventually

NUMBER = "12345678901234567890.1234567890123456789"
NDJSON = {"accept": "application/x-ndjson"}


@pytest.fixture
def log(database_dsn: str) -> Any:
    with small_log(database_dsn, 30) as connection:
        add_table(connection, "notes_x", 16385)
        add_inserts(connection, 5, "notes_x", 16385)
        yield connection


@pytest.fixture
def reading(api: Callable[..., Api], log: psycopg.Connection) -> Api:
    return api()


def seqs(page: dict[str, Any]) -> list[int]:
    return [event["seq"] for event in page["data"]]


def test_a_table_without_its_schema_is_answered_in_a_plain_sentence(reading: Api) -> None:
    answer = reading.get("/v1/events", tables="orders")
    said = "tables: name tables as schema.table, for example public.orders"
    assert (answer.status_code, answer.json()["title"]) == (422, said)
    assert "pattern" not in reading.get("/v1/events", consumer="a b").json()["title"]


def test_a_start_may_be_a_number(reading: Api) -> None:
    created = reading.post("/v1/consumers", name="counted", start=1)
    assert (created.status_code, created.json()["position"]) == (201, 1)
    assert reading.post("/v1/consumers/counted/reset", start=30).json()["position"] == 30
    assert reading.post("/v1/consumers/counted/reset", start="2").json()["position"] == 2
    assert reading.post("/v1/consumers/counted/reset", start=3.0).json()["position"] == 3


def test_who_drops_a_consumer_is_not_told_to_create_it(log: psycopg.Connection) -> None:
    with pytest.raises(psycopg.errors.UndefinedObject) as raised:
        log.execute("select pipeline.drop_consumer('none')")
    assert raised.value.diag.message_primary == "there is no consumer 'none'"
    assert raised.value.diag.message_hint == "See all: select name from pipeline.consumers."


def test_pages_follow_each_other(reading: Api) -> None:
    first = reading.get("/v1/events", limit=20).json()
    second = reading.get("/v1/events", after=first["last_seq"], limit=20).json()
    assert seqs(first) + seqs(second) == list(range(1, 36))
    assert second["last_seq"] == 35
    assert reading.get("/v1/events", after=35).json() == {"data": [], "last_seq": 35}


def test_the_row_is_as_postgres_prints_it(reading: Api, log: psycopg.Connection) -> None:
    log.execute("update sequin_events set record = jsonb_build_object('n', %s::numeric) where seq = 3", [NUMBER])
    answer = reading.get("/v1/events", after=2, limit=1)
    assert f'"n": {NUMBER}' in answer.text
    [event] = json.loads(answer.text, parse_float=Decimal)["data"]
    columns = log.execute("select * from sequin_events limit 0").description or []
    assert list(event) == [column.name for column in columns]
    assert event["record"] == {"n": Decimal(NUMBER)}


def test_an_event_a_line(reading: Api) -> None:
    answer = reading.client.get("/v1/events?after=30&limit=2", headers=NDJSON)
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert [json.loads(line)["seq"] for line in answer.text.splitlines()] == [31, 32]
    assert answer.headers["last-seq"] == "32"


def test_tables(reading: Api) -> None:
    for tables, found in (
        ("public.notes_x", [31, 32, 33, 34, 35]),
        ("public.notes*, other.x", [31, 32, 33, 34, 35]),
        ("public.notes_*", [31, 32, 33, 34, 35]),
        ("public.notes%", []),
        ("public.note__x", []),
        ("other.*", []),
    ):
        page = reading.get("/v1/events", tables=tables).json()
        assert (seqs(page), page["last_seq"]) == (found, 35), tables


def test_what_does_not_match_is_passed(reading: Api, log: psycopg.Connection) -> None:
    add_inserts(log, 25_000)
    after = 35

    def passed() -> bool:  # a search that takes long is answered as far as it has come
        nonlocal after
        page = reading.get("/v1/events", after=after, tables="public.notes_x").json()
        assert page["data"] == []
        after = page["last_seq"]
        return bool(after == 25_035)

    eventually(passed)


def test_a_cursors_position_and_filters(reading: Api) -> None:
    reading.post("/v1/consumers", name="c", kind="cursor", start="29", tables=["public.notes_x"])
    assert seqs(reading.get("/v1/events", consumer="c").json()) == [31, 32, 33, 34, 35]
    assert reading.post("/v1/consumers/c/advance", seq=33).json() == {"position": 33}
    assert reading.post("/v1/consumers/c/advance", seq=31).json() == {"position": 33}
    assert seqs(reading.get("/v1/events", consumer="c").json()) == [34, 35]
    assert seqs(reading.get("/v1/events", consumer="c", after=32, limit=1).json()) == [33]
    beyond = reading.post("/v1/consumers/c/advance", seq=99)
    assert (beyond.status_code, beyond.json()["title"]) == (422, "seq 99 is beyond the newest event, which is 35")


def test_rows_that_were_read_by_their_action(reading: Api, log: psycopg.Connection) -> None:
    log.execute("update public.sequin_events set action = 'read', commit_idx = commit_idx + 1 where seq in (3, 31, 32)")
    for kind in ("cursor", "records"):
        created = reading.post("/v1/consumers", name=kind, kind=kind, start="beginning", actions=["read"])
        assert (created.status_code, created.json()["actions"]) == (201, ["read"])
    found = reading.get("/v1/events", consumer="cursor").json()["data"]
    assert [(event["seq"], event["action"], event["changes"]) for event in found] == [
        (seq, "read", None) for seq in (3, 31, 32)
    ]
    assert reading.get("/v1/events", after=2, limit=1).json()["data"] == found[:1]


@pytest.mark.parametrize("more", [{}, {"wait": 30}, {"consumer": "c"}])
def test_after_an_event_that_is_yet_to_come_nothing_is_read(reading: Api, more: dict[str, Any]) -> None:
    reading.post("/v1/consumers", name="c", kind="cursor")
    assert reading.get("/v1/events", after=35).json() == {"data": [], "last_seq": 35}
    beyond = reading.get("/v1/events", after=36, **more)
    assert (beyond.status_code, beyond.json()["title"]) == (
        422,
        "seq 36 is beyond the newest event, which is 35: a reader there misses what comes next",
    )


def test_after_events_that_were_dropped_reading_goes_on(reading: Api, log: psycopg.Connection) -> None:
    log.execute("delete from public.sequin_events")
    assert reading.get("/v1/events", after=35).json() == {"data": [], "last_seq": 35}
    assert reading.get("/v1/events", after=36).status_code == 422


@pytest.mark.parametrize(
    ("method", "path", "use"),
    [
        ("get", "/v1/events", "use after, limit, wait, tables, events_table, consumer, actions, before, key"),
        ("get", "/v1/consumers/c/dead-letters", "use after, limit"),
        ("get", "/v1/consumers", "this path has no parameters"),
        ("post", "/v1/consumers", "this path has no parameters"),
        ("delete", "/v1/consumers/c", "this path has no parameters"),
    ],
)
def test_a_parameter_that_is_none_is_refused_by_its_name(reading: Api, method: str, path: str, use: str) -> None:
    answer = reading.client.request(method, path, params={"tabels": "public.notes"})
    assert (answer.status_code, answer.json()["title"]) == (422, f"unknown parameter 'tabels'; {use}")


def test_a_paused_cursor_is_given_nothing_until_it_is_resumed(reading: Api) -> None:
    reading.post("/v1/consumers", name="c", kind="cursor", start="beginning")
    reading.post("/v1/consumers/c/pause")
    assert reading.get("/v1/events", consumer="c").json() == {"data": [], "last_seq": 0}
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(reading.get, "/v1/events", consumer="c", wait=30, limit=1)
        reading.post("/v1/consumers/c/resume")
        assert seqs(waiting.result(60).json()) == [1]


@pytest.mark.parametrize(("name", "status"), [("nobody", 404), ("queue", 409)])
def test_who_is_no_cursor(reading: Api, name: str, status: int) -> None:
    reading.post("/v1/consumers", name="queue")
    answer = reading.get("/v1/events", consumer=name)
    assert answer.status_code == status
    assert f'consumer "{name}"' in answer.json()["title"]


def test_waiting_ends_with_the_first_event(reading: Api, log: psycopg.Connection) -> None:
    wait = 30
    with ThreadPoolExecutor() as pool:
        started = time.monotonic()
        waiting = pool.submit(reading.get, "/v1/events", after=35, wait=wait)
        with log.transaction():
            add_inserts(log, 1)
            log.execute("""notify sequin_events, '{"table": "public.sequin_events", "seq": 36}'""")
        assert seqs(waiting.result().json()) == [36]
        assert time.monotonic() - started < wait


def test_waiting_has_an_end(reading: Api) -> None:
    started = time.monotonic()
    assert reading.get("/v1/events", after=35, wait=0.3).json() == {"data": [], "last_seq": 35}
    assert time.monotonic() - started >= 0.3


def test_a_seq_of_a_log_that_was_lost_is_gone(reading: Api, log: psycopg.Connection) -> None:
    log.execute("insert into pipeline.seq_jumps values ('public.sequin_events', 10, 15, 'test')")
    for inside in (11, 14):
        gone = reading.get("/v1/events", after=inside)
        assert gone.status_code == 410
        assert "continue after 10" in gone.text
    assert reading.get("/v1/events", after=10).status_code == reading.get("/v1/events", after=15).status_code == 200


def test_what_retention_has_dropped_is_gone(reading: Api, log: psycopg.Connection) -> None:
    log.execute("insert into pipeline.retention (events_table, dropped_below) values ('public.sequin_events', 21)")
    log.execute("delete from sequin_events where seq < 21")
    reading.post("/v1/consumers", name="c", kind="cursor", start="beginning")
    log.execute("update pipeline.consumers set position = 0")
    gone = reading.get("/v1/events", after=19)
    assert (gone.status_code, gone.headers["content-type"]) == (410, "application/problem+json")
    assert gone.json()["title"] == (
        "the events up to seq 20 were dropped by retention; continue with after=20, or without after"
    )
    assert 'reset consumer "c"' in reading.get("/v1/events", consumer="c").json()["title"]
    assert seqs(reading.get("/v1/events", after=20, limit=1).json()) == [21]
    assert seqs(reading.get("/v1/events", limit=1).json()) == [21]


def test_a_large_page_ends_early(reading: Api, log: psycopg.Connection) -> None:
    log.execute("update sequin_events set record = jsonb_build_object('x', repeat('x', 1000000))")
    first = reading.get("/v1/events").json()
    assert 1 < len(first["data"]) < 20
    assert reading.get("/v1/events", after=first["last_seq"], limit=1).json()["data"][0]["seq"] == first["last_seq"] + 1


@pytest.mark.parametrize("wanted", [EVERYTHING, EventFilter(within=("public.notes*",))])
def test_reads_by_the_primary_key(log: psycopg.Connection, wanted: EventFilter) -> None:
    add_inserts(log, 30_000)
    log.execute("create table later partition of sequin_events for values from (100000000) to (200000000)")
    log.execute("analyze sequin_events")
    request = values(EventPageRequest(after=20_000, rows=100, bytes=MAX_BYTES, wanted=wanted))
    row = log.execute(b"explain (format json) " + shapes.JSON.statement, request).fetchone()
    assert row is not None
    ran = list(nodes(row[0][0]["Plan"]))
    assert "sequin_events_small_pkey" in {node.get("Index Name") for node in ran}
    assert "Seq Scan" not in {node["Node Type"] for node in ran}
    # Sorted is what a page has, in 16 and before also what is sorted already; never the log.
    below = [node for sort in ran if "Sort" in sort["Node Type"] for node in nodes(sort, ctes=False)]
    assert not [node for node in below if "Relation Name" in node]


def nodes(plan: dict[str, Any], *, ctes: bool = True) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        if ctes or child["Parent Relationship"] != "InitPlan":  # those stand below the topmost node
            yield from nodes(child, ctes=ctes)


def test_another_events_table_is_read_by_its_name(api: Callable[..., Api], log: psycopg.Connection) -> None:
    route(log)
    routes = [{"tables": ["public.audits"], "events_table": str(AUDIT)}]
    reading = api(routes=routes)
    first = reading.get("/v1/events", events_table=str(AUDIT), limit=20).json()
    assert (seqs(first), first["last_seq"]) == ([*range(1, 21)], 20)
    assert {event["source_table_name"] for event in first["data"]} == {"audits"}
    assert seqs(reading.get("/v1/events", events_table=str(AUDIT), after=25).json()) == [26, 27, 28, 29, 30]
    assert "beyond the newest event, which is 30" in reading.get("/v1/events", events_table=str(AUDIT), after=33).text
    assert seqs(reading.get("/v1/events", events_table="public.sequin_events", after=33).json()) == [34, 35]
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(reading.get, "/v1/events", events_table=str(AUDIT), after=30, wait=30)
        eventually(lambda: waiting.running())
        route(log, first=31, last=31)
        log.execute("select pg_notify('sequin_events', %s)", [json.dumps({"table": str(AUDIT), "seq": 31})])
        assert seqs(waiting.result(60).json()) == [31]
    unknown = reading.get("/v1/events", events_table="public.nothing")
    assert (unknown.status_code, unknown.json()["title"]) == (
        404,
        f"there is no events table 'public.nothing' in the settings; there are: public.sequin_events, {AUDIT}",
    )
    reading.post("/v1/consumers", name="c", kind="cursor")
    both = reading.get("/v1/events", events_table=str(AUDIT), consumer="c")
    assert (both.status_code, both.json()["title"]) == (
        422,
        'consumer "c" reads public.sequin_events; leave out events_table, or consumer',
    )


def test_a_consumer_of_another_events_table_reads_that_one(api: Callable[..., Api], log: psycopg.Connection) -> None:
    route(log)
    reading = api(routes=[{"tables": ["public.audits"], "events_table": str(AUDIT)}])
    none = reading.post("/v1/consumers", name="c", events_table="public.nothing")
    assert (none.status_code, str(AUDIT) in none.json()["title"]) == (422, True)
    assert none.json()["title"].startswith("there is no events table public.nothing; name one that a route sends")
    created = reading.post("/v1/consumers", name="c", kind="cursor", events_table=str(AUDIT), start=25).json()
    assert (created["events_table"], created["position"], created["lag"]) == (str(AUDIT), 25, 5)
    page = reading.get("/v1/events", consumer="c").json()
    assert (seqs(page), {event["source_table_name"] for event in page["data"]}) == ([26, 27, 28, 29, 30], {"audits"})
    assert seqs(reading.get("/v1/events", consumer="c", events_table=str(AUDIT), after=29).json()) == [30]
    wrong = reading.get("/v1/events", consumer="c", events_table="public.sequin_events")
    said = f'consumer "c" reads {AUDIT}; leave out events_table, or consumer'
    assert (wrong.status_code, wrong.json()["title"]) == (422, said)
    assert reading.post("/v1/consumers/c/advance", seq=30).json() == {"position": 30}
    assert "beyond the newest event, which is 30" in reading.post("/v1/consumers/c/advance", seq=31).json()["title"]
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(reading.get, "/v1/events", consumer="c", wait=30)
        eventually(lambda: waiting.running())
        route(log, first=31, last=31)
        log.execute("select pg_notify('sequin_events', %s)", [json.dumps({"table": str(AUDIT), "seq": 31})])
        assert seqs(waiting.result(60).json()) == [31]
    log.execute(SQL("drop table {}").format(AUDIT.identifier))
    gone = reading.get("/v1/events", consumer="c")
    said = f'consumer "c" reads {AUDIT}, which no longer exists; restore the table, or delete the consumer'
    assert (gone.status_code, gone.json()["title"]) == (410, said)
    assert reading.get("/v1/consumers/c").json()["lag"] == 0


class TestBackward:
    """The newest events first, by page, filter and row."""

    def test_pages_follow_each_other_to_the_oldest(self, reading: Api) -> None:
        first = reading.get("/v1/events", before=MAX_SEQ, limit=20).json()
        second = reading.get("/v1/events", before=first["first_seq"], limit=20).json()
        assert seqs(first) + seqs(second) == list(range(35, 0, -1))
        assert (first["first_seq"], first["last_seq"]) == (16, 35)
        assert (second["first_seq"], second["last_seq"]) == (0, 35)
        assert reading.get("/v1/events", before=1).json() == {"data": [], "first_seq": 0, "last_seq": 35}

    def test_filters(self, reading: Api, log: psycopg.Connection) -> None:
        log.execute("update sequin_events set action = 'delete' where seq in (3, 33)")
        newest = {"before": MAX_SEQ, "tables": "public.notes_x"}
        assert seqs(reading.get("/v1/events", **newest).json()) == [35, 34, 33, 32, 31]
        assert seqs(reading.get("/v1/events", **newest, actions="delete, update").json()) == [33]
        assert seqs(reading.get("/v1/events", actions="delete").json()) == [3, 33], "forward, too"
        answer = reading.get("/v1/events", before=MAX_SEQ, limit=2, actions="delete")
        assert (seqs(answer.json()), answer.json()["first_seq"]) == ([33, 3], 3)

    def test_a_filter_without_a_match_says_how_far_it_has_looked(
        self, reading: Api, log: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(page_before, "SPAN", 10)
        monkeypatch.setattr(event_pages, "SEARCH_SECONDS", 0)
        log.execute("update sequin_events set action = 'delete' where seq = 4")
        looked = [MAX_SEQ]
        while not (page := reading.get("/v1/events", before=looked[-1], actions="delete").json())["data"]:
            looked.append(page["first_seq"])
        assert (looked[1:], seqs(page)) == ([26, 16, 6], [4])
        monkeypatch.setattr(event_pages, "SEARCH_SECONDS", 60)
        assert seqs(reading.get("/v1/events", before=MAX_SEQ, actions="delete").json()) == [4]

    def test_a_page_ends_at_its_bytes(self, reading: Api, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(newest_first, "MAX_BYTES", 1)
        page = reading.get("/v1/events", before=MAX_SEQ).json()
        assert (seqs(page), page["first_seq"]) == ([35], 35)

    def test_the_history_of_a_row(self, reading: Api, log: psycopg.Connection) -> None:
        key = "a/b?'\"\n"
        log.execute("update sequin_events set record_pk = %s where seq in (1, 5, 31)", [key])
        log.execute("update sequin_events set record_pk = '' where seq = 7")
        table = log.execute("select source_table_schema || '.' || source_table_name from sequin_events where seq = 1")
        (name,) = table.fetchone() or ("",)
        row = {"tables": name, "key": key}
        assert seqs(reading.get("/v1/events", **row).json()) == [5, 1]
        page = reading.get("/v1/events", **row, limit=1).json()
        assert (seqs(page), page["first_seq"]) == ([5], 5)
        assert seqs(reading.get("/v1/events", **row, before=5).json()) == [1]
        assert seqs(reading.get("/v1/events", tables=name, key="").json()) == [7]
        assert reading.get("/v1/events", tables=name, key="none").json()["first_seq"] == 0

    @pytest.mark.parametrize(
        ("wrong", "why"),
        [
            ({"before": 5, "after": 1}, "before and key return"),
            ({"before": 5, "wait": 1}, "before and key return"),
            ({"key": "1"}, "give the name of its table"),
            ({"key": "1", "tables": "public.*"}, "give the name of its table"),
            ({"key": "1", "tables": "public.a,public.b"}, "give the name of its table"),
            ({"actions": "drop"}, "actions: expected some of insert,"),
            ({"actions": "insert", "consumer": "c"}, "a consumer has its own actions"),
        ],
    )
    def test_what_does_not_go_together_is_refused(self, reading: Api, wrong: dict[str, Any], why: str) -> None:
        answer = reading.get("/v1/events", **wrong)
        assert (answer.status_code, why in answer.json()["title"]) == (422, True), answer.text
