"""Requests while the databases are frozen: each is answered soon with 503, in the form of its wire, or with metrics."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import grpc
import httpx
import psycopg
import pytest

from pipeline.api import shared_reads
from pipeline.operate import readiness
from pipeline.postgres import pool, silence
from tests.fixtures.api import Api, answering
from tests.fixtures.proxies import through
from tests.fixtures.rpc import Rpc
from tests.fixtures.waiting import eventually
from tests.torture.faults.proxy import Proxy

BEARER = {"Authorization": "Bearer any"}
REQUESTS: dict[str, Callable[[Api], httpx.Response]] = {
    "consumers": lambda api: api.get("/v1/consumers"),
    "new consumer": lambda api: api.post("/v1/consumers", name="late", kind="cursor"),
    "events": lambda api: api.get("/v1/events"),
    "long poll": lambda api: api.get("/v1/events", wait=1),
    "receive": lambda api: api.post("/v1/consumers/work/receive", wait=1),
    "followers": lambda api: api.get("/v1/followers"),
    "backfills": lambda api: api.get("/v1/backfills"),
    "new backfill": lambda api: api.post("/v1/backfills", table="public.t"),
    "Sequin": lambda api: api.client.post("/api/http_pull_consumers/work/receive", json={}, headers=BEARER),
    "PG Delta Stream": lambda api: api.get("/v1/init"),
    "its snapshot": lambda api: api.post("/v1/snapshot/data", table="t", offset=0, limit=1),
    "readiness": lambda api: api.get("/readyz"),
    "status": lambda api: api.get("/v1/status"),
    "slots": lambda api: api.get("/v1/slots"),
    "metrics": lambda api: api.get("/metrics"),
}


def test_each_request_is_answered_while_the_databases_are_silent(
    proxy: Proxy, source_dsn: str, database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silence, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(silence, "TRY_SECONDS", 0.5)
    monkeypatch.setattr(pool, "_WAIT_SECONDS", 0.5)
    monkeypatch.setattr(readiness, "CHECK_SECONDS", 0.5)
    monkeypatch.setattr(shared_reads, "ANSWER_SECONDS", 1.0)
    settings = {"source_dsn": through(proxy, source_dsn), "wires": "sequin,pgdeltastream"}
    database = through(proxy, database_dsn)
    with answering(database, **settings) as api, Rpc(database) as rpc, ThreadPoolExecutor(len(REQUESTS)) as at_once:
        eventually(lambda: api.post("/v1/consumers", name="work", kind="records").status_code == 201)
        assert list(rpc.read()) == []
        proxy.freeze()
        answers = dict(zip(REQUESTS, at_once.map(lambda ask: ask(api), REQUESTS.values()), strict=True))
        expected = dict.fromkeys(REQUESTS, 503) | {"metrics": 200}
        assert {name: answer.status_code for name, answer in answers.items()} == expected
        assert {'pipeline_up{database="pipeline"} 0.0', "pipeline_ready 0.0"} < set(
            answers["metrics"].text.splitlines()
        )
        assert answers["receive"].json()["title"].startswith("the pipeline database does not answer")
        assert answers["PG Delta Stream"].json() == {"error": "unable to init session"}
        with pytest.raises(grpc.RpcError) as ended:
            list(rpc.read())
        assert ended.value.code() == grpc.StatusCode.UNAVAILABLE
        proxy.thaw()
        eventually(lambda: api.get("/v1/consumers").status_code == 200)
        eventually(lambda: list(rpc.read()) == [], errors=(grpc.RpcError,))


def test_a_statement_that_is_slow_is_waited_for(
    source_dsn: str, database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silence, "PATIENCE_SECONDS", 0.1)
    with answering(database_dsn) as api, psycopg.connect(database_dsn) as other, ThreadPoolExecutor(1) as thread:
        eventually(lambda: api.get("/v1/consumers").status_code == 200)
        other.execute("lock table pipeline.consumers")
        asked = thread.submit(api.get, "/v1/consumers/late")
        waiting = "select from pg_locks where not granted and relation = 'pipeline.consumers'::regclass"
        with psycopg.connect(database_dsn, autocommit=True) as look:
            eventually(lambda: look.execute(waiting).fetchone() == ())
            look.execute("select pg_sleep(0.5)")
        other.rollback()
        assert asked.result().status_code == 404
