"""The status over HTTP: everything at once, the lag of an hour, and the lists of tables, slots, sources and routes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel, ConfigDict, Field

from pipeline.api.parameters import refuse_unknown
from pipeline.api.problems import documented
from pipeline.api.shared_reads import ANSWER_SECONDS, SharedReads, json_response
from pipeline.capture.source import slots, sources
from pipeline.config.settings import Config
from pipeline.operate import captured_tables, known_sources, routes, slot_owners
from pipeline.operate.captured_tables import SourceTable
from pipeline.operate.lag import lag_hour
from pipeline.operate.lag.lag_hour import LagSample
from pipeline.operate.routes import RoutingReport
from pipeline.operate.status_reader import SharedStatus
from pipeline.postgres.kept_connection import CheckConnections


class Status(BaseModel):
    """The status as `pipeline status --json` prints it: these fields and others."""

    model_config = ConfigDict(extra="allow")

    replicating: bool = Field(description="true if changes arrive in the log")
    reasons: list[str] = Field(description="why not; empty if they do")
    warnings: list[str] = Field(description="users with too many or too few rights, a line each")
    lag_bytes: int | None = Field(description="bytes of the source's WAL that the log does not have yet")
    lag_seconds: float | None = Field(description="age of the oldest change that the log does not have; 0: caught up")
    lag: dict[str, Any] | None = Field(description="the stages, and the parts that delay changes, with remedies")
    last_seq: int | None
    events_per_second: float | None
    changes_per_second: float | None
    server: str = Field(description="name of this server; `roles` has the names of the servers that run them")
    version: str = Field(description="of this server")
    source_version: str | None = Field(description="of the source's Postgres")
    pipeline_version: str | None = Field(description="of the pipeline database's Postgres")


class LagHour(BaseModel):
    """The lag and the rates of the last hour, the oldest sample first."""

    data: list[LagSample]


class Tables(BaseModel):
    """Tables of the source, by name."""

    data: list[SourceTable]


class Slots(BaseModel):
    """The logical slots of the source, as `pipeline slots list --json` prints them."""

    data: list[dict[str, Any]]


class Sources(BaseModel):
    """The known sources with their epochs, as `pipeline sources list --json` prints them."""

    data: list[dict[str, Any]]


class Routing(BaseModel):
    """The routes, as `pipeline routes list --json` prints them."""

    in_force: dict[str, Any] | None = Field(description="the routes that apply now; null before the first start")
    pending: bool = Field(description="true: the settings differ, and apply from the next start on")
    tables: list[dict[str, Any]] = Field(description="the events tables")
    history: list[dict[str, Any]] = Field(description="all routes, the newest first")


def router(config: Config, server: str, reads: SharedReads, shared: SharedStatus) -> APIRouter:
    """Return the routes. `server`: this server's name. `shared`: the status, which `/metrics` shares."""
    found = APIRouter(prefix="/v1", tags=["status"], responses=documented(422), dependencies=[Depends(refuse_unknown)])

    def add(path: str, summary: str, model: type[BaseModel], read: Callable[[CheckConnections], Any]) -> None:
        answer = reads.answer(read)

        async def respond() -> Response:
            return json_response(await answer.read())

        found.get(path, response_model=model, summary=summary, description=model.__doc__)(respond)

    add("/status", "Status", Status, lambda opened: shared.read(opened).to_json() | {"server": server})
    add("/lag", "Lag of the last hour", LagHour, partial(_lag, config))
    add("/tables", "List tables", Tables, partial(_tables, config, shared))
    add("/slots", "List replication slots", Slots, partial(_slots, config))
    add("/sources", "List sources and epochs", Sources, _sources)
    add("/routes", "Show routes", Routing, partial(_routes, config))
    return found


def _lag(config: Config, opened: CheckConnections) -> dict[str, Any]:
    with opened.pipeline(ANSWER_SECONDS) as pipeline:
        stored = sources.find(pipeline, config.source_id)
        return {"data": lag_hour.read_samples(pipeline, stored.id) if stored else []}


def _tables(config: Config, shared: SharedStatus, opened: CheckConnections) -> dict[str, Any]:
    now = shared.read(opened)
    with opened.pipeline(ANSWER_SECONDS) as pipeline:
        stored = sources.find(pipeline, config.source_id)
        return {"data": captured_tables.list_tables(pipeline, stored, now) if stored else []}


def _slots(config: Config, opened: CheckConnections) -> dict[str, Any]:
    with opened.source(ANSWER_SECONDS) as source, opened.pipeline(ANSWER_SECONDS) as pipeline:
        found = slots.all_slots(source)
        known = slot_owners.sessions(source, pipeline, config.source_id, found)
    return {"data": slot_owners.owned(found, config.slot, known)}


def _sources(opened: CheckConnections) -> dict[str, Any]:
    with opened.pipeline(ANSWER_SECONDS) as pipeline:
        return {"data": known_sources.collect(pipeline)}


def _routes(config: Config, opened: CheckConnections) -> RoutingReport:
    with opened.pipeline(ANSWER_SECONDS) as pipeline:
        return routes.collect(config, pipeline)
