"""The wire of Sequin's pull clients over HTTP: paths, parameters, messages, errors, and what an acknowledgement is."""

from __future__ import annotations

import asyncio
import base64
import logging
import threading
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any

import httpx
import psycopg
import pytest
from psycopg.rows import args_row
from psycopg.types.json import Jsonb

from pipeline.config.routes import Route
from pipeline.log.table import EventsTable
from pipeline.log.wakeups import WakeupListener, WakeupSubscription
from pipeline.postgres.queries import statement
from pipeline.wires.sequin import items
from pipeline.wires.sequin.endpoints import NOT_FOUND
from pipeline.wires.sequin.items import ReceivedItem
from tests.fixtures.api import Api, answering
from tests.fixtures.postgres import Cluster
from tests.fixtures.shuffling import move
from tests.fixtures.staged import (
    Client,
    Staged,
    Table,
    create,
    delete,
    insert,
    message,
    read,
    staging_of,
    truncate,
    update,
)

BEARER = {"authorization": "Bearer of-any-value"}
CALLS = ("receive", "ack", "nack")
PATHS = ("/api/http_pull_consumers", "/api/sequin_streams")
IMPATIENT = httpx.Timeout(60, read=0.2)
SECRET = "geheim-31-sentinel"
ID = "7ffb1b4e-3b9c-4a52-8f0e-6b7c3c1a9d10"
VERSION = """
    insert into pipeline.relations (source_id, epoch, relation_oid, relation_schema, relation_name, table_oid,
        table_schema, table_name, replica_identity, columns, key_columns, from_lsn, from_idx)
    values (%s, 0, %s, 'public', 'typed', %s, 'public', 'typed', 'd', %s, '{id}', %s, 0)
"""


@pytest.fixture(scope="module")
def staging(cluster: Cluster) -> Iterator[Staged]:
    with staging_of(cluster, Table("t"), Table("pair", ("a", "b")), Table("typed")) as made:
        yield made


@pytest.fixture(scope="module")
def api(staging: Staged) -> Iterator[Api]:
    with answering(staging.dsn, wires=("sequin",), source_dsn="host=db.example,other dbname=shop") as api:
        api.client.headers.update(BEARER)
        yield api


@pytest.fixture
def client(staged: Staged) -> Client:
    return create(staged.connection, "orders")


def ask(api: Api, what: str, consumer: str = "orders", **body: Any) -> httpx.Response:
    return api.post(f"{PATHS[0]}/{consumer}/{what}", **body)


def received(api: Api, consumer: str = "orders", **body: Any) -> list[dict[str, Any]]:
    answer = ask(api, "receive", consumer, **{"max_batch_size": 100, **body})
    assert answer.status_code == 200, answer.text
    data: list[dict[str, Any]] = answer.json()["data"]
    return data


def ids(messages: list[dict[str, Any]]) -> list[str]:
    return [message["ack_id"] for message in messages]


def refusal(answer: httpx.Response) -> tuple[int, str]:
    """The status and the sentence; there is nothing else."""
    said = answer.json()
    assert list(said) == ["summary"], said
    assert answer.headers["content-type"] == "application/json"
    return answer.status_code, said["summary"]


def test_a_message_has_what_sequin_says_of_a_change(staged: Staged, api: Api, client: Client) -> None:
    staged.moved(insert("t", id=7, name="ä"))
    (found,) = received(api)
    lsn, metadata = staged.lsn, found["data"]["metadata"]
    uuid.UUID(found["ack_id"])
    stamp = metadata.pop("commit_timestamp")
    assert datetime.strptime(stamp, "%Y-%m-%dT%H:%M:%S.%fZ").strftime("%Y-%m-%dT%H:%M:%S.%fZ") == stamp
    assert found == {
        "ack_id": found["ack_id"],
        "data": {
            "record": {"id": 7, "name": "ä"},
            "changes": None,
            "action": "insert",
            "metadata": {
                "table_schema": "public",
                "table_name": "t",
                "commit_lsn": lsn,
                "commit_idx": 0,
                "transaction_annotations": None,
                "idempotency_key": base64.b64encode(f"{lsn}:0".encode()).decode(),
                "record_pks": ["7"],
                "database_name": "d",
                "enrichment": None,
                "consumer": {"id": str(uuid.uuid5(staged.source, "orders")), "name": "orders", "annotations": {}},
                "database": {
                    "id": str(staged.source),
                    "name": "d",
                    "annotations": {},
                    "database": "d",
                    "hostname": "db.example",
                },
            },
        },
    }


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("prefix", PATHS)
def test_both_paths_and_methods_receive(staged: Staged, api: Api, client: Client, prefix: str, method: str) -> None:
    staged.moved(insert("t", id=1), insert("t", id=2), insert("t", id=3))
    answer = api.client.request(method, f"{prefix}/orders/receive?max_batch_size=2")
    assert [item["data"]["record"]["id"] for item in answer.json()["data"]] == [1, 2]
    for what in ("ack", "nack"):
        answer = api.post(f"{prefix}/orders/{what}", ack_ids=ids(answer.json().get("data", [])) or [ID])
        assert (answer.status_code, answer.json()) == (200, {"success": True})


def test_without_a_size_there_is_one(staged: Staged, api: Api, client: Client) -> None:
    staged.moved(insert("t", id=1), insert("t", id=2))
    assert len(api.client.post(f"{PATHS[0]}/orders/receive").json()["data"]) == 1
    assert len(ask(api, "receive", batch_size="5").json()["data"]) == 1
    assert ask(api, "receive").json() == {"data": []}


def test_actions_and_what_they_have(staged: Staged, api: Api, client: Client) -> None:
    staged.moved(read("t", id=1), read("t", id=2))
    staged.moved(
        insert("t", id=3, v=1),
        update("t", id=1, v=2),
        update("t", {"v": 1}, id=2, v=2),
        delete("t", id=4),
        insert("pair", a=1, b="x,y"),
        message(SECRET),
    )
    found = {(item["data"]["action"], *item["data"]["metadata"]["record_pks"]): item["data"] for item in received(api)}
    assert found["insert", "3"]["changes"] is None
    assert found["update", "1"]["changes"] == {}
    assert found["update", "2"]["changes"] == {"v": 1}
    assert (found["delete", "4"]["record"], found["delete", "4"]["changes"]) == ({"id": 4}, None)
    assert found["insert", "1", "x,y"]["record"] == {"a": 1, "b": "x,y"}
    assert found["message",]["metadata"]["table_name"] == "note"
    staged.moved(read("t", id=9), truncate("pair"))
    assert received(api)[0]["data"]["action"] == "read"


def test_a_row_that_moves_to_another_key_is_two_messages_of_two_keys(staged: Staged, api: Api, client: Client) -> None:
    staged.moved(update("t", {"id": 1}, id=2, v=1))
    found = {item["data"]["action"]: item["data"] for item in received(api)}
    assert {action: data["record"] for action, data in found.items()} == {
        "delete": {"id": 1},
        "update": {"id": 2, "v": 1},
    }
    assert len({data["metadata"]["idempotency_key"] for data in found.values()}) == 2


def test_a_consumer_without_collapsing_gives_each_change_in_turn(staged: Staged, api: Api) -> None:
    """As Sequin does, and each with its own idempotency key."""
    create(staged.connection, "audit", collapse=False)
    staged.moved(insert("t", id=1, v=1), update("t", id=1, v=2), delete("t", id=1), insert("t", id=2, v=1))
    found = []
    while messages := received(api, "audit"):
        rows = [message["data"]["metadata"]["record_pks"] for message in messages]
        assert len({tuple(row) for row in rows}) == len(rows)
        found += [message["data"] for message in messages]
        assert ask(api, "ack", "audit", ack_ids=ids(messages)).status_code == 200
    of_row = [(each["action"], each["record"].get("v")) for each in found if each["metadata"]["record_pks"] == ["1"]]
    assert of_row == [("insert", 1), ("update", 2), ("delete", None)]
    assert len({each["metadata"]["idempotency_key"] for each in found}) == 4


def test_values_are_cast_as_their_table_was_then(staged: Staged, api: Api, client: Client) -> None:
    def version(type_name: str) -> None:
        """From the next transaction on."""
        columns = [{"name": "id", "type_name": "integer"}, {"name": "v", "type_name": type_name}]
        oid = staged.oid("typed")
        values = [staged.source, oid, oid, Jsonb([{**each, "base_type_oid": 23} for each in columns]), staged.lsn + 1]
        staged.connection.execute(VERSION, values)

    version("numeric")
    staged.moved(insert("typed", id=1, v=1))
    first = received(api)
    version("timestamp with time zone")
    staged.moved(insert("typed", id=2, v="2024-01-02 03:04:05.6+00"))
    ask(api, "nack", ack_ids=ids(first))
    values = {item["data"]["record"]["id"]: item["data"]["record"]["v"] for item in received(api)}
    assert values == {1: "1", 2: "2024-01-02T03:04:05.600000Z"}


def test_an_item_that_keeps_its_event_is_received_without_the_log(staged: Staged, api: Api) -> None:
    client = create(staged.connection, "orders", max_deliveries=1)
    staged.moved(insert("t", id=1, v="kept"))
    client.nack(*client.receive(), delay="0")
    staged.connection.execute("select pipeline.retry_dead('orders')")
    staged.connection.execute("delete from public.sequin_events")
    (found,) = received(api)
    assert found["data"]["record"] == {"id": 1, "v": "kept"}
    assert found["data"]["metadata"]["database"]["id"] == str(staged.source)


def test_items_of_another_events_table_are_messages_as_any(staged: Staged, api: Api) -> None:
    audits = EventsTable("public", "audits")
    shuffler = staged.shuffler(routes=[Route(tables=("public.pair",), events_table=str(audits))])
    move(shuffler)
    create(staged.connection, "audited", events_table=str(audits))
    staged.commit(insert("t", id=1), insert("pair", a=1, b=2, v="routed"))
    move(shuffler)
    (found,) = received(api, "audited")
    assert (found["data"]["record"], found["data"]["action"]) == ({"a": 1, "b": 2, "v": "routed"}, "insert")
    assert found["data"]["metadata"]["table_name"] == "pair"
    assert ask(api, "ack", "audited", ack_ids=[found["ack_id"]]).status_code == 200
    assert received(api, "audited") == []


def test_an_event_that_the_statement_did_not_see_is_looked_up_again(staged: Staged, client: Client) -> None:
    staged.moved(insert("t", id=1), insert("t", id=2))
    staged.moved(update("t", {"id": 2}, id=3))

    async def look() -> tuple[list[ReceivedItem], list[ReceivedItem]]:
        async with await psycopg.AsyncConnection.connect(staged.dsn) as connection:
            cursor = connection.cursor(row_factory=args_row(ReceivedItem))
            query = statement("wires.sequin", "receive_items")
            seen = await (await cursor.execute(query, {"name": "orders", "most": 10})).fetchall()
            unseen = [item._replace(table_key=None, event_action=None) for item in seen]
            return seen, await items._completed(connection, "orders", unseen)

    seen, again = asyncio.run(look())
    assert {item.event_action for item in seen} == {"insert", "update"}
    assert again == seen


@pytest.mark.parametrize("changed", [False, True], ids=["as it was", "changed meanwhile"])
def test_a_late_acknowledgement_settles_no_newer_delivery(
    staged: Staged, api: Api, client: Client, changed: bool
) -> None:
    staged.moved(insert("t", id=1, v=1))
    (first,) = received(api)
    client.expire()
    if changed:
        staged.moved(update("t", id=1, v=2))
    (second,) = received(api)
    assert second["data"]["record"]["v"] == 1 + changed
    out = client.item()
    assert out is not None
    assert out[2] == "delivered"
    for what in ("ack", "nack"):
        assert ask(api, what, ack_ids=ids([first])).json() == {"success": True}
        assert client.item() == out, "the newer one is out as it was"
    assert received(api) == []
    assert ask(api, "ack", ack_ids=ids([second])).json() == {"success": True}
    assert client.item() is None


def test_what_is_acknowledged_late_and_not_delivered_again_comes_again(
    staged: Staged, api: Api, client: Client
) -> None:
    staged.moved(insert("t", id=1, v=1))
    (first,) = received(api)
    staged.moved(update("t", id=1, v=2))
    ask(api, "ack", ack_ids=ids([first]))
    assert [item["data"]["record"]["v"] for item in received(api)] == [2], "the change that came meanwhile"


def test_a_refused_message_is_there_again_at_once(staged: Staged, api: Api, client: Client) -> None:
    staged.moved(insert("t", id=1))
    for _ in range(3):
        (found,) = received(api)
        assert ask(api, "nack", ack_ids=ids([found])).json() == {"success": True}
    assert ids(received(api)) != ids([found])


def test_unknown_ids_mean_nothing(staged: Staged, api: Api, client: Client) -> None:
    staged.moved(insert("t", id=1))
    received(api)
    for what in ("ack", "nack"):
        assert ask(api, what, ack_ids=[ID] * 10_000).json() == {"success": True}
    assert client.item() == (1, "insert", "delivered", 1, True)
    other = create(staged.connection, "other")
    staged.shuffle()
    (theirs,) = other.receive()
    assert ask(api, "ack", ack_ids=[str(theirs.ack_id)]).json() == {"success": True}
    assert other.ack(theirs) == 1, "of another consumer"


def test_who_waits_gets_what_comes(staged: Staged, api: Api, client: Client) -> None:
    answers: list[list[dict[str, Any]]] = []
    waits = threading.Thread(target=lambda: answers.append(received(api, wait_for="60s")))
    waits.start()
    staged.moved(insert("t", id=1))
    waits.join(60)
    assert [item["data"]["record"]["id"] for item in answers[0]] == [1]


def test_who_waits_in_vain_gets_an_empty_list(staged: Staged, api: Api, client: Client) -> None:
    assert received(api, wait_for=500) == []
    staged.connection.execute("select pipeline.pause_consumer('orders')")
    staged.moved(insert("t", id=1))
    assert received(api, wait_for="500ms") == []


def test_a_client_that_leaves_while_it_waits_takes_nothing_along(staged: Staged, api: Api, client: Client) -> None:
    with httpx.Client(base_url=api.url, headers=BEARER, timeout=IMPATIENT) as leaving, pytest.raises(httpx.ReadTimeout):
        leaving.post(f"{PATHS[0]}/orders/receive", json={"wait_for": "5m"})
    staged.moved(insert("t", id=1))
    assert [item["data"]["record"]["id"] for item in received(api, wait_for="60s")] == [1]


def test_a_name_wins_over_an_id(staged: Staged, api: Api, client: Client) -> None:
    staged.moved(insert("t", id=1))
    known_as = str(uuid.uuid5(staged.source, "orders"))
    assert received(api, known_as)[0]["data"]["metadata"]["consumer"]["name"] == "orders"
    assert received(api, known_as.upper()) == []
    create(staged.connection, known_as)
    staged.shuffle()
    assert received(api, known_as)[0]["data"]["metadata"]["consumer"]["name"] == known_as


@pytest.mark.parametrize("what", CALLS)
def test_an_unknown_consumer(staged: Staged, api: Api, what: str) -> None:
    for name in ("missing", ID, "a%00b", "a%20b", "x" * 64, "a%0A"):
        assert refusal(ask(api, what, name, ack_ids=[ID])) == (404, NOT_FOUND), name


def test_a_consumer_of_another_kind(staged: Staged, api: Api) -> None:
    create(staged.connection, "position", kind="cursor")
    for what in CALLS:
        status, said = refusal(ask(api, what, "position", ack_ids=[ID]))
        assert (status, said.startswith(NOT_FOUND), "kind cursor" in said) == (404, True, True)


BAD: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("receive", {"max_batch_size": 0}, "`max_batch_size`"),
    ("receive", {"batch_size": 1001}, "`max_batch_size`"),
    ("receive", {"wait_for": 499}, "`wait_for`"),
    ("receive", {"wait_for": "5h"}, "`wait_for`"),
    ("receive", {"wait_for": "NaN"}, "`wait_for`"),
    ("ack", {}, "`ack_ids`"),
    ("ack", {"ack_ids": []}, "`ack_ids`"),
    ("ack", {"ack_ids": [ID] * 10_001}, "`ack_ids`"),
    ("nack", {"ack_ids": [SECRET]}, "`ack_ids`"),
)


def test_bad_input_is_a_plain_error_and_loses_nothing(staged: Staged, api: Api, client: Client) -> None:
    staged.moved(insert("t", id=1))
    for what, body, said in BAD:
        status, sentence = refusal(ask(api, what, **body))
        assert (status, said in sentence, SECRET in sentence) == (400, True, False), body
    assert client.item() == (1, "insert", "available", 0, False)


def test_a_post_that_is_not_json(staged: Staged, api: Api, client: Client) -> None:
    staged.moved(insert("t", id=1))
    for given in (
        {"data": {"ack_ids": ID}},
        {"content": "{}"},
        {"content": '{"wait_for": NaN}', "headers": {"content-type": "application/json"}},
        {"json": [ID]},
    ):
        for what in CALLS:
            status, said = refusal(api.client.post(f"{PATHS[0]}/orders/{what}", **given))
            assert (status, "application/json" in said) == (400, True)
    assert client.item() == (1, "insert", "available", 0, False)


def test_other_methods_and_large_bodies_have_the_form_too(staged: Staged, api: Api, client: Client) -> None:
    assert refusal(api.client.get(f"{PATHS[0]}/orders/ack"))[0] == 405
    head = api.client.head(f"{PATHS[0]}/orders/receive")
    assert (head.status_code, head.headers["allow"]) == (405, "GET, POST")
    assert refusal(api.client.put(f"{PATHS[0]}/orders/receive"))[0] == 405
    large = api.client.post(f"{PATHS[0]}/orders/ack", content=b"x" * 1_000_001)
    assert refusal(large)[0] == 413


def test_a_page_of_another_origin_receives_nothing(staged: Staged, api: Api, client: Client) -> None:
    staged.moved(insert("t", id=1))
    for headers in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}):
        for method in ("GET", "HEAD"):
            answer = api.client.request(method, f"{PATHS[1]}/orders/receive", headers=headers)
            assert answer.status_code == 403
    answer = api.client.post(f"{PATHS[0]}/orders/receive", headers={"origin": "https://evil.example"}, json={})
    assert refusal(answer)[0] == 403
    assert client.item() == (1, "insert", "available", 0, False)


def test_some_bearer_is_always_wanted(staged: Staged, api: Api, client: Client) -> None:
    staged.moved(insert("t", id=1))
    with httpx.Client(base_url=api.url) as anonymous:
        for what in ("receive", "ack", "nack"):
            for headers in ({}, {"authorization": "Basic eDp4"}, {"authorization": "Bearer"}):
                answer = anonymous.post(f"{PATHS[0]}/orders/{what}", headers=headers)
                assert refusal(answer) == (401, refusal(answer)[1])
                assert answer.headers["www-authenticate"] == "Bearer"
    assert client.item() == (1, "insert", "available", 0, False)


def test_the_token_holds_and_an_open_wire_wants_any(staged: Staged, client: Client) -> None:
    staged.moved(insert("t", id=1))
    url, right = f"{PATHS[0]}/orders/receive", {"authorization": "Bearer secret"}
    with answering(staged.dsn, wires=("sequin",), api_token="secret") as guarded:
        assert refusal(guarded.client.post(url, headers=BEARER))[0] == 401
        (found,) = guarded.client.post(url, headers=right).json()["data"]
        assert found["data"]["metadata"]["database"]["hostname"] == "localhost", "its source is a folder of sockets"
    with answering(staged.dsn, wires=("sequin",), open_wires=("sequin",), api_token="secret") as opened:
        assert refusal(opened.client.post(url))[0] == 401
        assert opened.client.post(url, headers=BEARER).status_code == 200
        assert opened.client.get("/v1/consumers", headers=BEARER).status_code == 401, "nothing else is open"


def test_a_wire_that_is_not_served_does_not_exist(staged: Staged, client: Client) -> None:
    with answering(staged.dsn) as plain:
        for path in PATHS:
            assert plain.client.get(f"{path}/orders/receive").headers["content-type"] == "application/problem+json"


def test_it_is_not_in_openapi(api: Api) -> None:
    assert not [path for path in api.get("/openapi.json").json()["paths"] if path.startswith("/api/")]


def test_who_waits_is_answered_when_the_server_stops(
    staged: Staged, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, subscribe = threading.Event(), WakeupListener.for_consumer

    def seen(wakeups: WakeupListener, name: str) -> AbstractContextManager[WakeupSubscription]:
        waiting.set()
        return subscribe(wakeups, name)

    monkeypatch.setattr(WakeupListener, "for_consumer", seen)
    answers: list[httpx.Response] = []
    with answering(staged.dsn, wires=("sequin",)) as ending:
        url = f"{PATHS[0]}/orders/receive?wait_for=5m"
        waits = threading.Thread(target=lambda: answers.append(ending.client.get(url, headers=BEARER)))
        waits.start()
        assert waiting.wait(60)
        ending.stop()
        waits.join(60)
    assert [answer.json() for answer in answers] == [{"data": []}]


def test_no_value_is_in_a_log(
    staged: Staged, api: Api, client: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    staged.moved(insert("t", id=1, v=SECRET))
    assert received(api)[0]["data"]["record"]["v"] == SECRET
    ask(api, "ack", ack_ids=[SECRET])
    monkeypatch.setattr("pipeline.wires.sequin.message.idempotency_key", _broken)
    client.expire()
    assert refusal(ask(api, "receive"))[0] == 500
    assert SECRET not in caplog.text
    assert client.item() == (1, "insert", "delivered", 1, True), "what could not be answered was not delivered"


def _broken(*_: object) -> str:
    raise KeyError(SECRET)


def test_consumers_that_are_deleted_or_reset_meanwhile_are_said(staged: Staged, api: Api, client: Client) -> None:
    staged.moved(insert("t", id=1))
    (found,) = received(api)
    staged.connection.execute("select pipeline.reset_consumer('orders')")
    staged.shuffle()
    assert ask(api, "ack", ack_ids=ids([found])).json() == {"success": True}
    assert client.item() == (1, "insert", "available", 0, False)
    staged.connection.execute("select pipeline.drop_consumer('orders')")
    assert refusal(ask(api, "receive")) == (404, NOT_FOUND)
