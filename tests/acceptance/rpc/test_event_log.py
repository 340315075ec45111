"""pipeline.v1.EventLog against a whole server: transactions as the source committed them, positions, and who may."""

from __future__ import annotations

from itertools import islice

import grpc
import pytest
from google.protobuf import descriptor_pb2

from pipeline.rpc.protos import event_log_pb2 as pb
from tests.fixtures.event_log import EventLog
from tests.fixtures.grpc_place import TOKEN, Place, listening
from tests.fixtures.postgres import free_port
from tests.fixtures.rpc import consumer, position, refused, released, session_of
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.xdist_group("rpc")


def test_transactions_come_as_the_source_has_committed_them(place: Place) -> None:
    first, second = place.table(), place.table()
    with EventLog(place.address, TOKEN) as log:
        call = log.read(follow=True, tables=[f"public.{first}", f"public.{second}"])
        call.initial_metadata()
        place.together(f"insert into {first} values (1)", f"insert into {second} values (2)", f"delete from {first}")
        place.run(f"truncate {first}, {second}")
        one, two = islice(call, 2)
        call.cancel()
    assert one.complete
    assert two.complete
    assert [(each.table, each.action, each.record) for each in one.changes] == [
        (first, pb.INSERT, '{"id": 1}'),
        (second, pb.INSERT, '{"id": 2}'),
        (first, pb.DELETE, '{"id": 1}'),
    ]
    assert {each.table: each.action for each in two.changes} == {first: pb.TRUNCATE, second: pb.TRUNCATE}
    assert one.position.seq < two.changes[0].seq
    assert one.position.commit_lsn < two.position.commit_lsn


def test_a_large_transaction_comes_in_parts(place: Place) -> None:
    table = place.table("id int primary key, note text")
    place.run(f"insert into {table} select n, repeat('x', 300) from generate_series(1, 10000) n")
    place.logged(10_000, table)
    with EventLog(place.address, TOKEN) as log:
        parts = list(log.read(tables=[f"public.{table}"]))
    assert [part.complete for part in parts] == [False] * (len(parts) - 1) + [True]
    assert len(parts) > 2
    assert max(part.ByteSize() for part in parts) < 1_000_000
    assert len({part.xid for part in parts}) == 1
    assert [change.record_pk for part in parts for change in part.changes] == [str(n) for n in range(1, 10_001)]


def test_a_consumer_outlives_the_role(place: Place) -> None:
    table = place.table()
    consumer(place.log, "outlives", tables=[f"public.{table}"])
    place.run(*(f"insert into {table} values ({number})" for number in range(5)))
    place.logged(5, table)
    with EventLog(place.address, TOKEN) as log:
        call = log.read(consumer="outlives", follow=True)
        found = list(islice(call, 5))
        assert log.ack("outlives", found[2].position.seq, session_of(call)) == found[2].position.seq
        place.kill_role()
        with refused(grpc.StatusCode.UNAVAILABLE, ""):
            list(call)
    with EventLog(place.address, TOKEN) as log:
        call = log.read(consumer="outlives")
        session = session_of(call)
        assert [each.position.seq for each in call] == [each.position.seq for each in found[3:]]
        assert log.ack("outlives", found[-1].position.seq, session) == found[-1].position.seq, "after its end"
    released(place.log, "outlives")


def test_a_session_of_another_reader_moves_nothing(place: Place) -> None:
    table = place.table(rows="values (1)")
    place.logged(1, table)
    for name in ("mine", "theirs"):
        consumer(place.log, name)
    with EventLog(place.address, TOKEN) as log, EventLog(place.address, TOKEN) as other:
        mine, theirs = log.read(consumer="mine", follow=True), other.read(consumer="theirs", follow=True)
        first = next(mine)
        next(theirs)
        for session in (session_of(theirs), "", "nonsense"):
            with refused(grpc.StatusCode.FAILED_PRECONDITION, "does not read consumer 'mine'"):
                other.ack("mine", first.position.seq, session)
        with refused(grpc.StatusCode.FAILED_PRECONDITION, "is read by ipv4:127.0.0.1"):
            next(other.read(consumer="mine", follow=True))
        assert position(place.log, "mine") == 0
        assert log.ack("mine", first.position.seq, session_of(mine)) == first.position.seq
        for call in (mine, theirs):
            call.cancel()
    for name in ("mine", "theirs"):
        released(place.log, name)


def test_the_token_is_metadata_and_health_needs_none(place: Place) -> None:
    for token in (None, "", "wrong"):
        with EventLog(place.address, token) as log:
            with refused(grpc.StatusCode.UNAUTHENTICATED, "PIPELINE_API_TOKEN"):
                list(log.read())
            with refused(grpc.StatusCode.UNAUTHENTICATED, "PIPELINE_API_TOKEN"):
                log.reflect(list_services="")
            assert log.health() == "SERVING"


def test_reflection_tells_the_protocols(place: Place) -> None:
    with EventLog(place.address, TOKEN) as log:
        listed = log.reflect(list_services="").list_services_response.service
        known = {"pipeline.v1.EventLog", "plugin.PluginService", "grpc.health.v1.Health"}
        assert {each.name for each in listed} >= known
        files = log.reflect(file_containing_symbol="plugin.PluginService").file_descriptor_response
        found = descriptor_pb2.FileDescriptorProto.FromString(files.file_descriptor_proto[0])
    assert (found.package, found.syntax) == ("plugin", "proto3")
    event = {"pg_lsn": (1, 4), "schema": (2, 9), "table": (3, 9), "json_payload": (4, 9)}  # numbers and types
    kinds = {"insert": (1, 11), "update": (2, 11), "delete": (3, 11), "truncate": (4, 11)}
    fields = {
        each.name: {field.name: (field.number, field.type) for field in each.field} for each in found.message_type
    }
    assert fields == {
        "ClientAck": {"pg_lsn": (1, 4)},
        "ClientMessage": {"ack": (1, 11)},
        "InsertEvent": event,
        "UpdateEvent": event,
        "DeleteEvent": event,
        "TruncateEvent": {name: kind for name, kind in event.items() if name != "json_payload"},
        "ServerMessage": kinds,
    }
    oneofs = {each.name: [one.name for one in each.oneof_decl] for each in found.message_type if each.oneof_decl}
    assert oneofs == {"ClientMessage": ["msg"], "ServerMessage": ["msg"]}
    (service,) = found.service
    (method,) = service.method
    assert (service.name, method.name, method.input_type, method.output_type) == (
        "PluginService",
        "Session",
        ".plugin.ClientMessage",
        ".plugin.ServerMessage",
    )
    assert (method.client_streaming, method.server_streaming) == (True, True)


def test_health_by_service_and_watched(place: Place) -> None:
    with EventLog(place.address) as log:
        eventually(lambda: log.health() == "SERVING")
        for service in ("pipeline.v1.EventLog", "plugin.PluginService", "grpc.health.v1.Health"):
            assert log.health(service) == "SERVING"
        with refused(grpc.StatusCode.NOT_FOUND, "there is no service"):
            log.health("no.Such")
        watching, unknown = log.watch(), log.watch("no.Such")
        assert (next(watching), next(unknown)) == ("SERVING", "SERVICE_UNKNOWN")


def test_watchers_are_told_that_the_server_leaves_and_a_standby_serves(place: Place) -> None:
    port = free_port()
    standby = place.start(wait=False, **{**place.settings, "grpc_port": port})
    listening(port)
    table = place.table(rows="values (1)")
    place.logged(1, table)
    with EventLog(f"127.0.0.1:{port}", TOKEN) as log:
        eventually(lambda: log.health() == "NOT_SERVING")
        assert log.health("pipeline.v1.EventLog") == "SERVING"
        watching = log.watch("pipeline.v1.EventLog")
        assert next(watching) == "SERVING"
        (transaction,) = log.read(tables=[f"public.{table}"])
        assert [change.record for change in transaction.changes] == ['{"id": 1}']
        standby.process.terminate()
        assert next(watching) == "NOT_SERVING"
        assert standby.process.wait(120) == 0
