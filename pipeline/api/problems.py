"""Turns each error of a request into an answer with one plain sentence: problem+json, or the form that a wire needs.

`pipeline.refusals` has the status of each error.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute, iter_route_contexts
from psycopg_pool import PoolTimeout, TooManyRequests
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from pipeline import refusals
from pipeline.api import patterns
from pipeline.api.wire import ErrorAnswer, WireMatch
from pipeline.errors import PipelineError

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 5
"""The `Retry-After` of answers with status 503."""
UNEXPECTED = "an unexpected error; see the server's log"
_TEXTS = {
    404: "unknown path; /docs lists all paths",
    405: "this path does not support that method; /docs lists those it supports",
}


class Problem(BaseModel):
    """The body of every answer that is an error."""

    title: str = Field(description="what is wrong and what to do, in one sentence")
    status: int = Field(description="the HTTP status")


def problem(status: int, title: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Return an answer with this problem as its body."""
    return JSONResponse({"title": title, "status": status}, status, headers=headers, media_type=MEDIA_TYPE)


def answer(match: WireMatch | None, failure: ErrorAnswer) -> Response:
    """Return the answer to a failed request: in the form of its wire, or else as a problem."""
    return problem(failure.status, failure.sentence, failure.headers) if match is None else match.wire.answer(failure)


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return descriptions of error answers for OpenAPI: of these statuses, and of those that every endpoint has."""
    texts = {
        401: "The token is missing or wrong.",
        403: "The origin of the page, or the host name of the request, is not allowed.",
        404: "There is no such consumer, backfill or follower.",
        409: "The object's kind, state or reader does not allow this, the name is taken, or the table is being read.",
        410: "Retention has dropped the next events.",
        413: "The body is too large.",
        422: "A parameter, or a field of the body, is wrong or unknown.",
        503: "The pipeline database does not answer; ask again after `Retry-After` seconds.",
    }
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {
        status: {"description": texts[status], "content": content} for status in sorted({401, 403, 413, 503, *statuses})
    }


def changed_letters(found: int, through: int, counted: int | None) -> str:
    """Say that there are more or fewer dead letters than the client has counted."""
    return f"up to {through} there are {found} dead letters, not {counted}; list them again"


def explain(error: Exception) -> str:
    """Describe an error in one sentence for a log line. An unexpected error also gets a log line with its place."""
    if (known := refusals.for_reader(error)) is not None:
        return str(known)
    refusals.log_unexpected(error, "api.failed")
    return f"unexpected {type(error).__name__}"


def install(app: FastAPI) -> None:
    """Add the handlers that answer the errors of this application. Its `state.wires` must be the served wires."""
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    for kind in (PipelineError, PoolTimeout, TooManyRequests, psycopg.Error, Exception):
        app.add_exception_handler(kind, _failed)


def sentence(errors: Sequence[Any]) -> str:
    """Describe what is wrong with a request, without its values."""
    return "; ".join(dict.fromkeys(_explained(error) for error in errors))  # a parameter may be read twice


def _explained(error: Any) -> str:
    place, *path = [str(part) for part in error["loc"]] or ["body"]
    name = ".".join(path) or place
    if error["type"] == "extra_forbidden":
        return f"unknown field {name!r}; /docs lists all fields"
    if error["type"] == "missing":
        return f"{name} is missing" if path else "the body is missing; send JSON"
    if error["type"] == "json_invalid":
        return "the body is not JSON"
    if error["type"] == "string_pattern_mismatch":
        return f"{name}: {patterns.SENTENCES.get(error['ctx']['pattern'], 'a character is not allowed here')}"
    if error["type"] == "string_unicode":
        return f"{name}: {patterns.NO_SURROGATE}"
    message = str(error["msg"]).removeprefix("Value error, ")
    message = message if message[1:2].isupper() else message[0].lower() + message[1:]
    return f"{name}: {message}"


def _answer(request: Request, failure: ErrorAnswer) -> Response:
    return answer(request.app.state.wires.match(request.scope["path"]), failure)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101  by registration
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        return _answer(request, ErrorAnswer(405, _TEXTS[405], {"Allow": ", ".join(_methods(request)) or allowed}))
    if error.status_code == 400:  # FastAPI's status for a body that is not text
        return _answer(request, ErrorAnswer(422, "the body is not JSON"))
    given = error.detail if error.status_code not in _TEXTS or error.detail[:1].islower() else None
    return _answer(request, ErrorAnswer(error.status_code, given or _TEXTS[error.status_code], error.headers or {}))


def _methods(request: Request) -> list[str]:
    """Return all methods that this path supports, since Starlette names only those of the first route with the path."""
    found: set[str] = set()
    for each in iter_route_contexts(request.app.routes):
        is_documented = isinstance(each.original_route, APIRoute) and each.include_in_schema
        if is_documented and compile_path(each.path or "")[0].match(request.url.path):
            found |= each.methods or set()
    return sorted(found)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101  by registration
    status = 400 if any(each["type"] == "string_unicode" for each in error.errors()) else 422
    return _answer(request, ErrorAnswer(status, sentence(error.errors())))


async def _failed(request: Request, error: Exception) -> Response:
    """Answer any other error: an error of the product, of a database, or an unexpected one."""
    if (known := refusals.for_reader(error)) is not None:
        status = refusals.codes(known).status
        later = {"Retry-After": str(RETRY_SECONDS)} if status == 503 else {}
        return _answer(request, ErrorAnswer(status, str(known), later))
    if isinstance(error, UnicodeEncodeError) and patterns.SURROGATE.search(error.object[error.start : error.end]):
        return _answer(request, ErrorAnswer(400, patterns.NO_SURROGATE))
    refusals.log_unexpected(error, "api.failed")
    return _answer(request, ErrorAnswer(500, UNEXPECTED))
