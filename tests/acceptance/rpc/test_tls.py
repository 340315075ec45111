"""With a certificate the port speaks TLS and nothing else; a second server serves walstream's plaintext clients."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
import trustme

from tests.fixtures.bare_http2 import Connection
from tests.fixtures.event_log import EventLog
from tests.fixtures.grpc_place import TOKEN, Place, ids, listening, of, place_of
from tests.fixtures.postgres import Cluster, free_port
from tests.fixtures.rpc import refused
from tests.fixtures.server import run_command
from tests.fixtures.waiting import eventually
from tests.fixtures.walstream import Client

pytestmark = pytest.mark.xdist_group("rpc tls")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ca.pem, cert.pem and key.pem."""
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    made = authority.issue_cert("localhost")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    made.private_key_pem.write_to_path(folder / "key.pem")
    made.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    return folder


@pytest.fixture(scope="module")
def place(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory, files: Path) -> Iterator[Place]:
    """Its HTTP port speaks TLS too, so that readiness is asked for over gRPC."""
    given: dict[str, Any] = {"http_certificate": files / "cert.pem", "http_key": files / "key.pem", "api_token": TOKEN}
    with place_of(cluster, tmp_path_factory.mktemp("rpc"), wait=False, **given) as made:
        with EventLog(f"localhost:{made.port}", None, trusting(files)) as log:
            eventually(lambda: log.health() == "SERVING", errors=(AssertionError, grpc.RpcError))
        yield made


def trusting(files: Path) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials((files / "ca.pem").read_bytes())


def test_it_serves_over_tls_with_a_token(place: Place, files: Path) -> None:
    table = place.table(rows="values (1)")
    place.logged(1, table)
    with EventLog(f"localhost:{place.port}", TOKEN, trusting(files)) as log:
        (found,) = log.read(tables=[f"public.{table}"])
        assert found.changes[0].record == '{"id": 1}'
    with (
        EventLog(f"localhost:{place.port}", "wrong", trusting(files)) as log,
        refused(grpc.StatusCode.UNAUTHENTICATED, "PIPELINE_API_TOKEN"),
    ):
        list(log.read())


def test_it_speaks_nothing_else(place: Place) -> None:
    with Client(place.address, TOKEN, wait=False) as client:
        assert client.ended()[0] == grpc.StatusCode.UNAVAILABLE
    with Connection(place.port) as connection:
        assert connection.ended.wait(60), "HTTP/2 without TLS"
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://127.0.0.1:{place.port}/", timeout=20)
    stranger = grpc.ssl_channel_credentials(trustme.CA().cert_pem.bytes())
    with EventLog(f"localhost:{place.port}", TOKEN, stranger) as log, refused(grpc.StatusCode.UNAVAILABLE, ""):
        log.ack("x", 1, "x")


def test_http_speaks_tls_too_and_health_takes_any_name(place: Place, files: Path, tmp_path: Path) -> None:
    trusted = ssl.create_default_context(cafile=files / "ca.pem")
    with httpx.Client(verify=trusted, timeout=60, headers={"authorization": f"Bearer {TOKEN}"}) as client:
        where = f"https://localhost:{place.server.port}"
        eventually(lambda: client.get(f"{where}/readyz").status_code == 200, errors=(httpx.TransportError,))
        assert client.get(f"{where}/v1/consumers").json() == {"data": []}
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://localhost:{place.server.port}/healthz")
    given = {"http_certificate": files / "cert.pem", "http_key": files / "key.pem", "http_host": "127.0.0.1"}
    done = run_command("health", folder=tmp_path, http_port=place.server.port, **given)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done


def test_a_second_server_serves_plaintext_clients_of_walstream(place: Place) -> None:
    """As the issue says: the first one leaves walstream out."""
    port = free_port()
    settings: dict[str, object] = {
        "wires": "walstream",
        "open_wires": "walstream",
        "api_token": TOKEN,
        "grpc_port": port,
    }
    second = place.start(arguments=("serve", "--only", "grpc"), wait=False, **settings)
    listening(port)
    eventually(lambda: "walstream.made" in second.log())  # its clients get what comes after that
    table = place.table()
    with Client(f"127.0.0.1:{port}").connected() as client:
        place.run(f"insert into {table} values (1)")
        assert ids(of(client, table, 1)) == [1]
        place.settled()
        second.process.terminate()
        status, words = client.ended()
        assert (status, words) == (grpc.StatusCode.UNAVAILABLE, "the server is stopping; call again")
    assert second.process.wait(120) == 0
