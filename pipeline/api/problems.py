"""What goes wrong, as problem+json with one plain sentence; which error has which status is said here alone."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from psycopg_pool import PoolTimeout, TooManyRequests
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from pipeline import db
from pipeline.consumers import refusals
from pipeline.errors import PipelineError, Unavailable

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 5
"""When to ask again, where that helps."""
_STATUS_OF_STATE = {
    "42704": 404,  # unknown consumer
    "42710": 409,  # the name is taken
    "22023": 422,  # a wrong argument
    "42809": 409,  # the wrong kind of consumer
    "55006": 409,  # held by another reader
    "22003": 410,  # below what retention has left
}
"""The SQL functions say what is wrong by these; their sentences are handed on."""
_LATER = ("08", "53", "57", "40", "55P03")
"""The beginnings of states that go away: no connection, no room, shutdown, deadlock, a lock that was not to be had."""
_NOT_MIGRATED = ("42P01", "42883", "3F000")
_TEXTS = {
    404: "there is nothing at this path; /docs shows what there is",
    405: "this path does not answer that method; /docs shows which it does",
}


class Problem(BaseModel):
    """Every answer that is an error."""

    title: str = Field(description="what is wrong and what to do, in one sentence")
    status: int = Field(description="the HTTP status")


def problem(status: int, title: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The answer that says so."""
    return JSONResponse({"title": title, "status": status}, status, headers=headers, media_type=MEDIA_TYPE)


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """These answers for OpenAPI, beside those that every endpoint has."""
    texts = {
        401: "The token is missing or wrong.",
        403: "The page or the host name that asks is not one of ours.",
        404: "There is no such consumer.",
        409: "The consumer's kind, state or reader does not allow it, or the name is taken.",
        410: "Retention has dropped what comes next.",
        413: "The body is too large.",
        415: "The body is not declared as JSON.",
        422: "A parameter, or a field of the body, is wrong or unknown.",
        503: "The pipeline database does not answer; ask again after `Retry-After` seconds.",
    }
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {
        status: {"description": texts[status], "content": content} for status in sorted({401, 403, 413, 503, *statuses})
    }


def install(app: FastAPI) -> None:
    """Answer every error of the application this way."""
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(PipelineError, _ours)
    app.add_exception_handler(PoolTimeout, _no_connection)
    app.add_exception_handler(TooManyRequests, _no_connection)
    app.add_exception_handler(psycopg.Error, _of_database)
    app.add_exception_handler(Exception, _unexpected)


def unavailable(sentence: str) -> JSONResponse:
    """503, and when to ask again."""
    return problem(503, sentence, {"Retry-After": str(RETRY_SECONDS)})


def of_database(error: psycopg.Error) -> JSONResponse:
    """What the pipeline database refused, by its SQLSTATE."""
    state = error.sqlstate or ""
    if status := _STATUS_OF_STATE.get(state):
        return problem(status, refusals.sentence(error))
    if state.startswith(_LATER) or isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return unavailable(f"the pipeline database does not do it now: {db.one_line(error)}; try again later")
    if state in _NOT_MIGRATED:
        return unavailable("the pipeline database is of another version; run `pipeline migrate`")
    if isinstance(error, psycopg.DataError):
        return problem(422, "a value is not one that Postgres can take, such as a text with a zero byte")
    logger.error("%s", db.one_line(error), extra={"action": "api.failed", "sqlstate": state})
    return problem(500, "the pipeline database refused what the server asked; the server's log says why")


def sentence(errors: Sequence[Any]) -> str:
    """What is wrong with a request, without the values that were given."""
    return "; ".join(_explained(error) for error in errors)


def _explained(error: Any) -> str:
    place, *path = [str(part) for part in error["loc"]] or ["body"]
    name = ".".join(path) or place
    if error["type"] == "extra_forbidden":
        return f"unknown field {name!r}; /docs shows which there are"
    if error["type"] == "missing":
        return f"{name} is missing" if path else "the body is missing; send JSON"
    if error["type"] == "json_invalid":
        return "the body is not JSON"
    message = str(error["msg"]).removeprefix("Value error, ")
    message = message if message[1:2].isupper() else message[0].lower() + message[1:]
    return f"{name}: {message}"


async def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)  # noqa: S101  by registration
    if error.status_code == 405:
        return problem(405, _TEXTS[405], {"Allow": ", ".join(_methods(request))})
    if error.status_code == 400:  # FastAPI's word for a body that is not even text
        return problem(422, "the body is not JSON")
    given = error.detail if error.status_code not in _TEXTS or error.detail[:1].islower() else None
    return problem(error.status_code, given or _TEXTS[error.status_code], error.headers)


def _methods(request: Request) -> list[str]:
    """All that this path answers; Starlette names those of the first route that has the path."""
    found: set[str] = set()
    for path, operations in request.app.openapi()["paths"].items():
        if compile_path(path)[0].match(request.url.path):
            found |= {method.upper() for method in operations}
    return sorted(found)


async def _invalid(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)  # noqa: S101  by registration
    return problem(422, sentence(error.errors()))


async def _ours(_request: Request, error: Exception) -> JSONResponse:
    return unavailable(str(error)) if isinstance(error, Unavailable) else problem(500, str(error))


async def _no_connection(_request: Request, _error: Exception) -> JSONResponse:
    return unavailable("the pipeline database does not answer, or is busy; try again later")


async def _of_database(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, psycopg.Error)  # noqa: S101  by registration
    return of_database(error)


async def _unexpected(_request: Request, error: Exception) -> JSONResponse:
    where = " < ".join(
        f"{each.filename}:{each.lineno}" for each in reversed(traceback.extract_tb(error.__traceback__)[-5:])
    )
    logger.error(
        "unexpected %s", type(error).__name__, extra={"action": "api.failed", "where": where}
    )  # texts hold values
    return problem(500, "an unexpected error; the server's log names it")
