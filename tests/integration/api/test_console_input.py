"""What the console must survive, as the API answers it: hostile values, crowds, renamed tables, proxies, two people."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from pipeline.api.models import MAX_SEQ
from tests.fixtures.api import Api
from tests.fixtures.console_crowds import CONSUMERS, FOLLOWERS, TABLES, add_crowds
from tests.fixtures.small_log import add_inserts, add_table, small_log
from tests.integration.api.test_console import FILES, STATIC, TOKEN, session

SCRIPT = "<script>alert(1)</script>"


@pytest.fixture
def log(database_dsn: str) -> Any:
    with small_log(database_dsn, 3) as connection:
        yield connection


def test_scripts_and_large_values_are_sent_as_json(api: Callable[..., Api], log: psycopg.Connection) -> None:
    log.execute("update sequin_events set record = jsonb_build_object('v', %s::text) where seq = 1", [SCRIPT])
    log.execute("update sequin_events set record = jsonb_build_object('v', repeat('x', 5000000)) where seq = 2")
    answer = api().get("/v1/events", before=3)
    assert answer.headers["content-type"] == "application/json"
    assert [event["record"]["v"] for event in answer.json()["data"]] == ["x" * 5_000_000, SCRIPT]


def test_crowds_are_listed_in_full(api: Callable[..., Api], log: psycopg.Connection, source_dsn: str) -> None:
    add_crowds(log)
    served = api(source_dsn=source_dsn)
    for path, count in (("tables", TABLES), ("consumers", CONSUMERS), ("followers", FOLLOWERS)):
        assert len(served.get(f"/v1/{path}").json()["data"]) == count, path
    status = served.get("/v1/status")
    assert (len(status.json()["consumers"]), len(status.json()["followers"])) == (CONSUMERS, FOLLOWERS)


def test_the_history_of_a_row_survives_a_new_name(api: Callable[..., Api], log: psycopg.Connection) -> None:
    log.execute("delete from sequin_events")
    add_inserts(log, 1)
    add_table(log, "bills")  # the same oid
    add_inserts(log, 1, "bills")
    add_table(log, "orders", 17000)  # another table that took the name
    add_inserts(log, 1, "orders", 17000)
    log.execute("update sequin_events set record_pk = '1'")
    served = api()
    oids = {
        name: [event["source_table_oid"] for event in served.get("/v1/events", tables=name, key="1").json()["data"]]
        for name in ("public.orders", "public.bills")
    }
    assert oids == {"public.orders": [17000, 16384, 16384], "public.bills": [16384, 16384]}
    assert len(served.get("/v1/events", tables="public.bills", before=MAX_SEQ).json()["data"]) == 1


def test_one_of_two_people_deletes_a_consumer(api: Callable[..., Api]) -> None:
    served = api()
    for _ in range(10):
        served.post("/v1/consumers", name="both")
        with ThreadPoolExecutor(2) as people:
            answers = list(people.map(lambda _: served.client.delete("/v1/consumers/both"), range(2)))
        assert sorted(each.status_code for each in answers) == [200, 404]
        (late,) = (each.json()["title"] for each in answers if each.status_code == 404)
        assert late.startswith("there is no consumer 'both'")


def test_a_session_is_accepted_beside_the_password_of_a_proxy(api: Callable[..., Api]) -> None:
    closed = api(api_token=TOKEN)
    headers = session(closed, TOKEN)
    answer = closed.client.get("/v1/consumers", headers=headers, auth=("me", "of-the-proxy"))
    assert answer.status_code == 200
    assert closed.client.get("/v1/consumers", auth=("me", "of-the-proxy")).status_code == 401


def test_a_page_of_another_origin_cannot_send_a_session(api: Callable[..., Api]) -> None:
    closed = api(api_token=TOKEN, http_origins=("https://app.example",))
    page = {"origin": "https://evil.example"}
    asks = {"access-control-request-method": "GET", "access-control-request-headers": "pipeline-session"}
    preflight = closed.client.options("/v1/status", headers={**page, **asks})
    assert (preflight.status_code, preflight.headers.get("access-control-allow-origin")) == (400, None)
    stolen = {**page, **session(closed, TOKEN)}
    assert closed.client.delete("/v1/consumers/x", headers=stolen).status_code == 403


def test_no_file_of_the_page_has_an_address_from_the_root() -> None:
    for name in FILES:
        text = (STATIC / name).read_text("utf-8")
        assert re.findall(r"""["'`(=]/(?:v1|console)\b|(?:href|src)=["']/""", text) == [], name
