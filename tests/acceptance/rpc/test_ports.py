"""A port that another process has, and one that is off."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipeline.config.settings import Config
from tests.fixtures.event_log import EventLog
from tests.fixtures.grpc_place import Place, require_clean
from tests.fixtures.server import Serving, run_command
from tests.fixtures.waiting import eventually

DEFAULT = int(str(Config.model_fields["grpc_port"].default))


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield int(listener.getsockname()[1])


@pytest.mark.parametrize("only", [(), ("--only", "grpc")], ids=["all", "grpc"])
def test_a_port_that_was_set_and_is_taken_is_refused(
    taken: int, only: tuple[str, ...], tmp_path: Path, source_dsn: str, database_dsn: str, slot_name: str
) -> None:
    settings = {"source_dsn": source_dsn, "database_dsn": database_dsn, "slot": slot_name, "grpc_port": taken}
    done = run_command("serve", *only, folder=tmp_path, **settings)
    assert done.returncode == 1, done
    said = f"cannot listen on 127.0.0.1:{taken}: Address already in use; stop what uses the port, or choose another "
    assert said + "PIPELINE_GRPC_PORT" in done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


def test_grpc_alone_and_off_is_refused(tmp_path: Path, source_dsn: str, database_dsn: str) -> None:
    settings = {"source_dsn": source_dsn, "database_dsn": database_dsn, "grpc_port": "off"}
    done = run_command("serve", "--only", "grpc", folder=tmp_path, **settings)
    assert done.returncode == 2
    assert "PIPELINE_GRPC_PORT is off" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.xdist_group("port 50051")
def test_the_default_port_is_waited_for_and_all_else_served(
    serve: Callable[..., Serving], tmp_path: Path, source_dsn: str, database_dsn: str
) -> None:
    try:
        listener = socket.create_server(("127.0.0.1", DEFAULT))
    except OSError:
        pytest.skip(f"another process has port {DEFAULT}, which this test would take")
    with listener:
        server = serve(grpc_port=None)
        eventually(lambda: f"port {DEFAULT} is taken; stop what uses it, or choose another" in server.log())
        assert server.get("/readyz").status_code == 200

        def shown() -> None:
            done = run_command("status", folder=tmp_path, source_dsn=source_dsn, database_dsn=database_dsn)
            assert "grpc" in done.stdout, done
            assert f"port {DEFAULT} is taken" in " ".join(done.stdout.split()), done.stdout

        eventually(shown)
    with EventLog(f"127.0.0.1:{DEFAULT}") as log:
        eventually(lambda: log.health("pipeline.v1.EventLog") == "SERVING")
        assert list(log.read()) == []
    assert server.stop() == 0
    require_clean(server)


@pytest.mark.xdist_group("rpc")
def test_two_servers_do_not_share_a_port_without_a_word(place: Place, tmp_path: Path) -> None:
    settings = {"source_dsn": place.source.info.dsn, "database_dsn": place.log.info.dsn, "grpc_port": place.port}
    done = run_command("serve", "--only", "grpc", folder=tmp_path, **settings)
    assert f"cannot listen on 127.0.0.1:{place.port}" in done.stderr, done
