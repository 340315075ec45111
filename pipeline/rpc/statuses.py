"""Translates errors for gRPC: a status and one plain sentence (pipeline/refusals.py has the table)."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any, NoReturn

import grpc

from pipeline import refusals
from pipeline.errors import DatabaseUnavailableError

logger = logging.getLogger(__name__)

LEAVING = "the server is stopping; call again"
_SEND_SECONDS = 1.0
_GONE = "the client disconnected during a send"
_AWAY = "the pipeline database is not available; call again"
_ADDRESS = re.compile(r"\b(host|hostaddr|port|user|dbname)=|connection")
_UNEXPECTED = "an unexpected error; see the server's log"


async def abort(context: grpc.aio.ServicerContext[object, object], error: Exception) -> NoReturn:
    """End the call with the status and sentence of an error, which never contain the database's address."""
    # If a client disconnects during a send, the send may fail before grpcio cancels the call.
    known = DatabaseUnavailableError(_GONE) if isinstance(error, grpc.aio.InternalError) else refusals.for_reader(error)
    if known is None:
        refusals.log_unexpected(error, "grpc.failed")
        await _send(context, grpc.StatusCode.INTERNAL, _UNEXPECTED)
    status = grpc.StatusCode[refusals.codes(known).grpc]
    if isinstance(known, DatabaseUnavailableError):
        logger.info("a call ended: %s", known, extra={"action": "grpc.unavailable"})
    await _send(
        context,
        status,
        _AWAY if isinstance(known, DatabaseUnavailableError) and _ADDRESS.search(str(known)) else str(known),
    )


async def _send(context: grpc.aio.ServicerContext[object, object], status: grpc.StatusCode, sentence: str) -> NoReturn:
    try:
        await context.abort(status, sentence)
    except grpc.aio.InternalError:  # the client has disconnected: grpcio would log an error with a traceback
        raise asyncio.CancelledError from None
    raise AssertionError("abort raises")


async def begin(context: grpc.aio.ServicerContext[Any, Any], *metadata: tuple[str, str]) -> None:
    """Send the call's initial metadata, at most once even if the call ends meanwhile."""
    sending = asyncio.ensure_future(context.send_initial_metadata(metadata))
    try:
        await asyncio.shield(sending)
    except asyncio.CancelledError:
        await asyncio.wait([sending], timeout=_SEND_SECONDS)
        raise
