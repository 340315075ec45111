"""Token, open wires, pages of other origins, host names: what is refused, and in the wire's own form."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from pipeline.config import settings
from pipeline.errors import ConfigError
from tests.fixtures.api import Api
from tests.fixtures.delta_stream import Client
from tests.fixtures.postgres import free_port
from tests.fixtures.server import run_command
from tests.fixtures.wire_place import TOKEN, Place

pytestmark = pytest.mark.xdist_group("pgdeltastream")
WIRE = "pgdeltastream"
PAGE = "https://app.example"
Answering = Callable[..., Api]


@pytest.fixture(scope="module")
def answering(place: Place) -> Iterator[Answering]:
    """The API alone, with other settings, on the databases of the server that runs."""
    with ExitStack() as stack:

        def start(**given: Any) -> Api:
            shared: dict[str, Any] = {
                "source_dsn": place.source_dsn,
                "database_dsn": place.log.info.dsn,
                "slot": place.slot,
            }
            config = settings.load(**{**shared, "http_port": free_port(), "export_schedule": "off", **given})
            return stack.enter_context(Api(config))

        yield start


@pytest.fixture(scope="module")
def closed(answering: Answering) -> Api:
    return answering(wires=WIRE, api_token=TOKEN, http_origins=PAGE, sessions_max=40)


@pytest.fixture(scope="module")
def opened(answering: Answering) -> Api:
    return answering(wires=WIRE, open_wires=WIRE, api_token=TOKEN, sessions_max=40)


def error(answer: httpx.Response) -> str:
    """What it says, in the form of the wire."""
    assert answer.headers["content-type"] == "application/json; charset=utf-8", answer.text
    assert list(answer.json()) == ["error"]
    return str(answer.json()["error"])


def test_without_the_token_nothing_of_the_wire_answers(closed: Api) -> None:
    for headers in ({}, {"authorization": "Bearer wrong"}):
        for answer in (
            closed.client.get("/v1/init", headers=headers),
            closed.client.post("/v1/snapshot/data", content="{}", headers=headers),
            closed.client.get("/v1/lr/stream?slotName=x", headers=headers),
        ):
            assert answer.status_code == 401
            assert error(answer)
            assert TOKEN not in answer.text
    with (
        pytest.raises(InvalidStatus) as refused,
        Client(closed.config.http_port).stream("delta_face1"),
    ):
        pass
    assert refused.value.response.status_code == 401


def test_with_the_token_it_does(closed: Api) -> None:
    client = Client(closed.config.http_port, {"authorization": f"Bearer {TOKEN}"})
    slot = client.init()
    with client.stream(slot) as line:
        assert line.is_quiet(0.1)
    client.close()


def test_an_open_wire_needs_none_and_all_else_does(opened: Api) -> None:
    client = Client(opened.config.http_port)
    slot = client.init()
    with client.stream(slot) as line:
        assert line.is_quiet(0.1)
    client.close()
    other = opened.client.get("/v1/consumers")
    assert (other.status_code, other.headers["content-type"]) == (401, "application/problem+json")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"origin": PAGE, "sec-fetch-site": "cross-site"}, 200),
    ],
)
def test_pages_of_other_origins_make_no_session(
    closed: Api, place: Place, headers: dict[str, str], status: int
) -> None:
    before = place.source.execute("select count(*) from pg_replication_slots").fetchone()
    answer = closed.client.get("/v1/init", headers={"authorization": f"Bearer {TOKEN}", **headers})
    assert answer.status_code == status, answer.text
    if status == 403:
        assert error(answer)
        assert place.source.execute("select count(*) from pg_replication_slots").fetchone() == before


def test_what_is_typed_into_a_browser_and_its_own_pages_are_let_in(place: Place) -> None:
    for site in ("none", "same-origin"):
        assert place.client.http.get("/v1/init", headers={"sec-fetch-site": site}).status_code == 200
    own = f"http://127.0.0.1:{place.client.port}"
    assert place.client.http.get("/v1/init", headers={"origin": own}).status_code == 200


def test_a_page_of_another_origin_gets_no_stream(place: Place) -> None:
    with (
        pytest.raises(InvalidStatus) as refused,
        place.client.stream("delta_face1", origin="https://evil.example"),
    ):
        pass
    assert refused.value.response.status_code == 403


def test_a_strange_host_name_is_refused_without_a_token(place: Place) -> None:
    strange = {"host": "rebound.example"}
    answers = (
        place.client.http.get("/v1/init", headers=strange),
        place.client.http.post("/v1/snapshot/data", content="{}", headers=strange),
    )
    for answer in answers:
        assert answer.status_code == 403
        assert error(answer)


def test_a_body_that_is_too_large_gets_413(place: Place) -> None:
    with suppress(httpx.WriteError):
        answer = place.client.http.post("/v1/snapshot/data", content=b"x" * 1_000_001)
        assert answer.status_code == 413
        assert error(answer)


def test_where_the_wire_is_not_served_its_paths_are_unknown(answering: Answering) -> None:
    api = answering()
    for answer in (api.client.get("/v1/init"), api.client.post("/v1/snapshot/data", json={})):
        assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
        assert answer.json() == api.client.get("/v1/nothing").json()


def test_before_any_init_there_is_no_snapshot(answering: Answering, cluster: object, database_dsn: str) -> None:
    api = answering(database_dsn=database_dsn, wires=WIRE)
    for body in ("no json", '{"table":"x","offset":0,"limit":1}'):
        answer = api.client.post("/v1/snapshot/data", content=body)
        assert answer.status_code == 503
        assert error(answer) == "snapshot not available: call /init to initialize a new slot and snapshot"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"wires": "pgdeltastream,walex"}, "walex"),
        ({"wires": "PGDeltaStream"}, "PGDeltaStream"),
        ({"open_wires": WIRE}, "PIPELINE_WIRES"),
        ({"wires": WIRE, "open_wires": "walex"}, "walex"),
        ({"wires": WIRE, "open_wires": WIRE, "http_host": "0.0.0.0"}, "PIPELINE_API_TOKEN"),  # noqa: S104
        ({"wires": WIRE, "sessions_max": 0}, "PIPELINE_SESSIONS_MAX"),
        ({"sessions_idle": "soon"}, "PIPELINE_SESSIONS_IDLE"),
        ({"sessions_wal": "much"}, "PIPELINE_SESSIONS_WAL"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused_by_name(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        settings.load(**given)
    assert said in str(refused.value)


def test_an_open_wire_is_warned_of_by_check(place: Place, tmp_path: Path) -> None:
    shared = {"source_dsn": place.source_dsn, "database_dsn": place.log.info.dsn, "slot": place.slot}
    done = run_command("check", folder=tmp_path, wires=WIRE, open_wires=WIRE, api_token=TOKEN, **shared)
    assert any(WIRE in line and "token" in line for line in done.stdout.splitlines()), done.stdout
    assert TOKEN not in done.stdout + done.stderr
