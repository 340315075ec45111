"""Answers as PG Delta Stream gave them, to the byte."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import Response
from fastapi.responses import JSONResponse, PlainTextResponse

from pipeline.api.wire import Failure

NO_SLOT = "no slotName provided"
_HANDSHAKE = {"Sec-Websocket-Version": "13"}


class Json(JSONResponse):
    """Compact JSON that names its encoding."""

    media_type = "application/json; charset=utf-8"


def refused(status: int, sentence: str) -> Response:
    """`{"error": "one sentence"}`."""
    return Json({"error": sentence}, status)


def error(failure: Failure) -> Response:
    """The same; to a handshake a line of text before it, and all of it as text."""
    if not failure.handshake:
        return Json({"error": failure.sentence}, failure.status, headers=dict(failure.headers))
    return _no_upgrade(failure.status, failure.sentence, dict(failure.headers))


def no_page(_failure: Failure) -> Response:
    """The answer to a method that a path does not have: there never was another status for it."""
    return PlainTextResponse("404 page not found", 404)


def not_a_websocket() -> Response:
    """The answer to a request of the stream that asks for no WebSocket."""
    return _no_upgrade(400, "could not upgrade to websocket connection", {})


def _no_upgrade(status: int, sentence: str, headers: dict[str, str]) -> Response:
    body: Any = Json({"error": sentence}).body
    text = f"{HTTPStatus(status).phrase}\n{bytes(body).decode()}"
    return PlainTextResponse(text, status, headers={**_HANDSHAKE, **headers})
