"""Requests that change something for other people: each is logged, without values, and lists are read again."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

from fastapi import Depends, Request

logger = logging.getLogger(__name__)


async def _log(request: Request) -> AsyncIterator[None]:
    yield  # an error of the endpoint is raised here, so only requests that have succeeded are logged
    request.app.state.reads.forget_lists()
    address = request.client.host if request.client else "a client without an address"
    named = getattr(request.state, "subject", "")
    logger.info(
        "%s %s%s: done for %s",
        request.method,
        request.url.path,
        named and f" {named}",
        address,
        extra={"action": "api.action"},
    )


LOGGED = [Depends(_log, scope="function")]  # which ends before the answer is sent
"""`dependencies` of an endpoint whose requests are logged. If its path has no name, it sets `request.state.subject`."""
