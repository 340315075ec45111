"""Answers as Sequin's clients know them."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import Response
from fastapi.responses import JSONResponse

from pipeline.api.wire import Failure

NOT_FOUND = "Not found: No `consumer` found matching the provided ID or name"


def messages(texts: Sequence[str]) -> Response:
    """Those that are received, each as JSON."""
    return Response(f'{{"data":[{",".join(texts)}]}}', media_type="application/json")


def success() -> Response:
    """What was asked for is done."""
    return JSONResponse({"success": True})


def error(failure: Failure) -> Response:
    """One sentence."""
    return JSONResponse({"summary": failure.sentence}, failure.status, headers=dict(failure.headers))


def bad_request(failure: Failure) -> Response:
    """Of what is wrong with a request, whatever it is."""
    return JSONResponse({"summary": failure.sentence}, 400)


def not_found(_failure: Failure) -> Response:
    """There is no such consumer."""
    return JSONResponse({"summary": NOT_FOUND}, 404)


def other_kind(failure: Failure) -> Response:
    """There is one, of which nothing can be received."""
    return JSONResponse({"summary": f"{NOT_FOUND}: {failure.sentence}"}, 404)
