"""Who gets in, and what is said at the door: token, TLS, health, reflection, and a port that is taken."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import psycopg
import pytest
import trustme
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from pipeline.postgres import role_locks
from pipeline.rpc.protos import event_log_pb2 as pb
from pipeline.rpc.protos import plugin_pb2
from tests.fixtures.postgres import Cluster, free_port
from tests.fixtures.rpc import Rpc, bearer, refused
from tests.fixtures.small_log import small_log
from tests.fixtures.waiting import eventually

HEALTH, REFLECTION = "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture(scope="module")
def dsn(cluster: Cluster) -> Iterator[str]:
    with cluster.database("events", cluster.template) as made, small_log(made, 20):
        yield made


def health(rpc: Rpc, service: str = "") -> Any:
    check = rpc.channel.unary_unary(
        f"/{HEALTH}/Check",
        request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
        response_deserializer=health_pb2.HealthCheckResponse.FromString,
    )
    return check(health_pb2.HealthCheckRequest(service=service), timeout=20).status


def reflected(rpc: Rpc, token: str | None = None, **asked: Any) -> Any:
    ask = rpc.channel.stream_stream(
        f"/{REFLECTION}/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )
    return next(ask(iter([reflection_pb2.ServerReflectionRequest(**asked)]), timeout=20, metadata=bearer(token)))


def test_server_health_means_ready_and_service_health_reads_the_log(dsn: str) -> None:
    with Rpc(dsn, api_token="geheim") as rpc:
        assert health(rpc) == NOT_SERVING, "no role replicates"
        assert (health(rpc, "pipeline.v1.EventLog"), health(rpc, HEALTH)) == (SERVING, SERVING)
        for unknown in ("plugin.PluginService", "nonsense"):
            with refused(grpc.StatusCode.NOT_FOUND, f"no service '{unknown}'"):
                health(rpc, unknown)
    with Rpc(dsn, wires="walstream") as rpc:
        assert health(rpc, "plugin.PluginService") == SERVING


def test_who_watches_health_is_told_when_the_server_leaves(dsn: str) -> None:
    with Rpc(dsn) as rpc:
        watch = rpc.channel.unary_stream(
            f"/{HEALTH}/Watch",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        told = watch(health_pb2.HealthCheckRequest(service="pipeline.v1.EventLog"), timeout=20)
        assert next(told).status == SERVING
        rpc.stop()
        assert [each.status for each in told] == [NOT_SERVING]


def test_reflection_says_what_is_served_and_needs_the_token(dsn: str) -> None:
    with Rpc(dsn, wires="walstream", open_wires="walstream", api_token="geheim") as rpc:
        with refused(grpc.StatusCode.UNAUTHENTICATED, "PIPELINE_API_TOKEN"):
            reflected(rpc, list_services="")
        services = {each.name for each in reflected(rpc, "geheim", list_services="").list_services_response.service}
        assert services == {HEALTH, REFLECTION, "pipeline.v1.EventLog", "plugin.PluginService"}
        for symbol, ours in (("plugin.PluginService", plugin_pb2), ("pipeline.v1.EventLog", pb)):
            answer = reflected(rpc, "geheim", file_containing_symbol=symbol).file_descriptor_response
            found, expected = FileDescriptorProto.FromString(answer.file_descriptor_proto[0]), FileDescriptorProto()
            ours.DESCRIPTOR.CopyToProto(expected)
            assert found == expected


def test_with_a_certificate_tls_is_spoken_and_nothing_else(dsn: str, tmp_path: Path) -> None:
    authority = trustme.CA()
    pair = authority.issue_cert("localhost")
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    for blob in pair.cert_chain_pems:
        blob.write_to_path(certificate, append=True)
    pair.private_key_pem.write_to_path(key)
    with Rpc(dsn, http_certificate=certificate, http_key=key) as rpc:
        plain = rpc.channel
        with refused(grpc.StatusCode.UNAVAILABLE, ""):
            list(rpc.read())
        credentials = grpc.ssl_channel_credentials(authority.cert_pem.bytes())
        rpc.channel = grpc.secure_channel(f"localhost:{rpc.config.grpc_port}", credentials)
        assert next(rpc.read()).changes[0].seq == 1
        plain.close()


def test_a_port_that_is_taken_is_waited_for_and_status_says_so(dsn: str, caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()
    taken = f"port {port} is taken"
    with psycopg.connect(dsn, autocommit=True) as log, socket.create_server(("127.0.0.1", port)) as other:

        def role() -> tuple[str, str | None]:
            found = role_locks.states(log)["grpc"]
            return found.state, found.reason

        with caplog.at_level(logging.WARNING), Rpc(dsn, grpc_port=port) as rpc:
            eventually(lambda: role()[0] == "waiting", errors=(KeyError,))
            assert taken in (role()[1] or "")
            other.close()
            eventually(lambda: role() == ("running", None))
            assert next(rpc.read()).changes[0].seq == 1
        assert [taken in record.getMessage() for record in caplog.records if "gRPC" in record.getMessage()] == [True]
