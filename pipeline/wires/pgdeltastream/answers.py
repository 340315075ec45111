"""Answers that equal those of PG Delta Stream byte by byte."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import Response
from fastapi.responses import JSONResponse, PlainTextResponse

from pipeline.api.wire import ErrorAnswer

NO_SLOT = "no slotName provided"
_HANDSHAKE = {"Sec-Websocket-Version": "13"}


class JsonAnswer(JSONResponse):
    """Compact JSON that names its encoding."""

    media_type = "application/json; charset=utf-8"


def refused(status: int, sentence: str) -> Response:
    """Return the answer `{"error": "one sentence"}`."""
    return JsonAnswer({"error": sentence}, status)


def error(failure: ErrorAnswer) -> Response:
    """Return the answer to a failed request.

    For a handshake it is plain text, with the name of the status before it.
    """
    if not failure.handshake:
        return JsonAnswer({"error": failure.sentence}, failure.status, headers=dict(failure.headers))
    return _no_upgrade(failure.status, failure.sentence, dict(failure.headers))


def no_page(_failure: ErrorAnswer) -> Response:
    """Return the answer to a method that a path does not have: 404, as from PG Delta Stream."""
    return PlainTextResponse("404 page not found", 404)


def not_a_websocket() -> Response:
    """Return the answer to a request for the stream that asks for no WebSocket."""
    return _no_upgrade(400, "could not upgrade to websocket connection", {})


def _no_upgrade(status: int, sentence: str, headers: dict[str, str]) -> Response:
    body: Any = JsonAnswer({"error": sentence}).body
    text = f"{HTTPStatus(status).phrase}\n{bytes(body).decode()}"
    return PlainTextResponse(text, status, headers={**_HANDSHAKE, **headers})
