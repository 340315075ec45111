"""/v1/followers: listed and shown, with the states of their tables; nothing is changed there."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pipeline.followers.operating import status
from tests.fixtures.api import Api
from tests.fixtures.followers import Adding
from tests.fixtures.waiting import eventually


@pytest.fixture
def served(adding: Adding, api: Callable[..., Api]) -> Api:
    return api(source_dsn=adding.known.config.source)


def test_listed_and_shown(adding: Adding, served: Api, follower_dsn: str) -> None:
    assert served.get("/v1/followers").json() == {"data": []}
    adding.add(follower_dsn, tables=("public.orders",))
    shown = served.get("/v1/followers/reports")
    assert shown.status_code == 200, shown.text
    found = shown.json()
    [listed] = eventually(lambda: served.get("/v1/followers").json()["data"])  # the list may be 2 s old
    assert listed.keys() == found.keys()
    assert (found["name"], found["state"], found["reason"]) == ("reports", "waiting", status.NO_SERVER)
    assert (found["seq"], found["commit_lsn"], found["commit_lsn_bytes"], found["lag_seqs"]) == (0, None, None, 0)
    assert (found["copy"], found["schema"], found["ddl"], found["on_rewrite"]) == ("source", "create", "follow", "copy")
    assert found["tables"] == [{"table": "public.orders", "state": "waiting", "reason": None, "remedy": None}]
    assert (found["lacks"] or "").startswith("table public.orders is waiting: ")
    assert served.get("/readyz").json()["followers"] == [f'follower "reports": {found["lacks"]}']
    exposed = served.get("/metrics").text
    assert 'pipeline_follower_lacks_tables{follower="reports"} 1.0' in exposed
    assert 'pipeline_follower_state{follower="reports",state="waiting"} 1.0' in exposed


def test_paused_and_resumed(adding: Adding, served: Api, follower_dsn: str) -> None:
    adding.add(follower_dsn, tables=("public.orders",))
    assert served.post("/v1/followers/reports/pause").json()["state"] == "paused"
    assert served.post("/v1/followers/reports/resume").json()["state"] == "waiting"
    early = served.post("/v1/followers/reports/resync", tables=["*"])
    assert early.status_code == 409
    assert "has not begun" in early.json()["title"]
    assert early.json()["title"].endswith("; wait for that: `pipeline followers wait reports`")
    assert served.post("/v1/followers/reports/resync", tables=[]).status_code == 422
    for action in ("pause", "resume"):
        assert served.post(f"/v1/followers/missing/{action}").status_code == 404
    assert served.post("/v1/followers/missing/resync", tables=["*"]).status_code == 404


def test_what_is_not_there(served: Api) -> None:
    answer = served.get("/v1/followers/missing")
    assert answer.status_code == 404
    assert answer.json()["title"].startswith('there is no follower "missing"; `pipeline followers list`')
    assert served.get("/v1/followers/a%20b").status_code == 422
    assert served.get("/v1/followers", limit=1).status_code == 422
    assert served.post("/v1/followers", name="x").status_code == 405
