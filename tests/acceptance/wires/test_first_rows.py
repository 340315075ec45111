"""What the first rows of a new table are for each reader of the log: those that it has before it is published."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from pipeline.rpc.protos import event_log_pb2 as pb
from tests.fixtures import delta_stream, streaming
from tests.fixtures.event_log import EventLog
from tests.fixtures.grpc_place import Place, place_of
from tests.fixtures.plain_http import client as http_client
from tests.fixtures.postgres import Cluster, unique
from tests.fixtures.wire_place import drop_slots

pytestmark = pytest.mark.xdist_group("first rows")

WIRES = "walstream,sequin,pgdeltastream"


@pytest.fixture(scope="module", params=[2_000, pytest.param(100_000, marks=pytest.mark.long)])
def old_rows(request: pytest.FixtureRequest) -> int:
    """How many rows the source has in a table before the first start."""
    return int(request.param)


@pytest.fixture(scope="module")
def place(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory, old_rows: int) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("first")
    old = ("create table old (id int primary key)", f"insert into old select generate_series(1, {old_rows})")
    with place_of(cluster, folder, before=old, wires=WIRES, snapshot="initial", log_level="info") as made:
        yield made
        drop_slots(made.source)


def fresh(place: Place) -> str:
    """A new table with two rows; a third one is inserted once the first two are in the log."""
    name = unique("t")
    place.together(f"create table {name} (id int primary key)", f"insert into {name} values (1), (2)")
    place.logged(2, name)
    place.run(f"insert into {name} values (3)")
    place.logged(3, name)
    return name


def test_walstreams_clients_get_inserts_and_no_row_of_an_older_table(place: Place, old_rows: int) -> None:
    with place.client() as client:
        name = fresh(place)
        place.logged(old_rows, "old")
        events = client.take(3)
        place.run("insert into old values (0)")
        last = client.next()
    assert [(each.kind, each.table) for each in events] == [("insert", f"public.{name}")] * 3
    assert sorted(each.values["id"] for each in events[:2]) == [1, 2]
    assert (last.table, last.values) == ("public.old", {"id": 0}), "no other row of it came"


@pytest.fixture(scope="module")
def table(place: Place) -> str:
    """For readers that begin at the beginning."""
    return fresh(place)


def test_event_log_gives_reads(place: Place, table: str) -> None:
    with EventLog(place.address) as log:
        found = [change for each in log.read(tables=[f"public.{table}"]) for change in each.changes]
    assert [change.action for change in found] == [pb.READ, pb.READ, pb.INSERT]
    assert [json.loads(change.record)["id"] for change in found] in ([1, 2, 3], [2, 1, 3])


@pytest.mark.parametrize(("actions", "expected"), [([], ["read", "read", "insert"]), (["insert"], ["insert"])])
def test_websocket_gives_reads_unless_the_consumers_actions_leave_them_out(
    place: Place, table: str, actions: list[str], expected: list[str]
) -> None:
    name = unique("c")
    settings = {"kind": "cursor", "start": "beginning", "tables": [f"public.{table}"], "actions": actions}
    with http_client(place.server.port) as http:
        assert http.post("/v1/consumers", json={"name": name, **settings}).status_code == 201
    with streaming.stream(place.server.port, name) as stream:
        while len(stream.seqs) < len(expected):
            stream.next()
        assert [event["action"] for frame in stream.frames for event in frame.get("data", [])] == expected


def test_sequins_clients_get_messages_with_the_action_read(place: Place, table: str) -> None:
    name = unique("c")
    with http_client(place.server.port) as http:
        settings = {"kind": "records", "start": "beginning", "tables": [f"public.{table}"]}
        assert http.post("/v1/consumers", json={"name": name, **settings}).status_code == 201
        found: dict[int, str] = {}
        while len(found) < 3:
            asked = {"max_batch_size": 10, "wait_for": "60s"}
            answer = http.post(
                f"/api/http_pull_consumers/{name}/receive", json=asked, headers={"authorization": "Bearer any"}
            )
            assert answer.status_code == 200, answer.text
            found |= {each["data"]["record"]["id"]: each["data"]["action"] for each in answer.json()["data"]}
    assert found == {1: "read", 2: "read", 3: "insert"}


def test_pg_delta_stream_clients_get_first_rows_in_the_next_snapshot(place: Place) -> None:
    client = delta_stream.Client(place.server.port)
    slot = client.init()
    with client.stream(slot) as line:
        name = fresh(place)
        changes = [change for change in line.changes() if change["table"] == name]
        assert [(change["kind"], change["columnvalues"]) for change in changes] == [("insert", [3])]
    assert client.rows(name, client.init()) == [{"id": 1}, {"id": 2}, {"id": 3}]
    client.close()
