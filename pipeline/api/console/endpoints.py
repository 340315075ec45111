"""The page of the console and its files, which are the same for all and need no token, and its login."""

from __future__ import annotations

import logging
import time
from collections import deque
from pathlib import Path

from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse, RedirectResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from pipeline.api import access_sessions
from pipeline.api.access_guard import SESSION_PATH
from pipeline.config.settings import Config

logger = logging.getLogger(__name__)

_STATIC = Path(__file__).parent / "static"
_POLICY = "; ".join(
    (
        "default-src 'none'",
        *(f"{kind}-src 'self'" for kind in ("script", "style", "img", "connect")),
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "form-action 'none'",
        "base-uri 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
"""The headers of the page and its files."""
_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}

_LOGGED_A_MINUTE = 10
"""Wrong tokens that are logged in a minute. No client is locked out: behind a proxy, all have the same address."""
_logged: deque[float] = deque(maxlen=_LOGGED_A_MINUTE)

router = APIRouter(include_in_schema=False)


class GivenToken(BaseModel):
    """The token that a user has typed into the page."""

    model_config = ConfigDict(extra="forbid")

    token: str = Field(max_length=10_000)


class ConsoleSession(BaseModel):
    """A session value for the header `Pipeline-Session`. `may_change`: False if it may only read."""

    session: str
    may_change: bool


@router.post(SESSION_PATH)
async def log_in(request: Request, given: GivenToken) -> ConsoleSession:
    """Return a session for a token, PIPELINE_API_TOKEN or PIPELINE_READ_TOKEN."""
    config: Config = request.app.state.config
    if config.api_token is None:
        raise HTTPException(409, "this server needs no token")
    rights = access_sessions.rights_of(given.token, config)
    if rights is None:
        _log_wrong_token(request.client.host if request.client else "a client without an address")
        raise HTTPException(401, "the token is wrong; use PIPELINE_API_TOKEN or PIPELINE_READ_TOKEN of the server")
    return ConsoleSession(session=access_sessions.create_session(given.token), may_change=rights == "all")


def _log_wrong_token(address: str) -> None:
    now = time.monotonic()
    if len(_logged) < _LOGGED_A_MINUTE or now - _logged[0] > 60:
        _logged.append(now)
        logger.warning("wrong token in the console's login, from %s", address, extra={"action": "api.wrong_token"})


@router.get("/")
@router.get("/console")
async def lead_to_console() -> Response:
    """Lead to the page. The address is relative, because a proxy may add a prefix."""
    return RedirectResponse("console/", 307)


@router.get("/console/")
async def show_page() -> Response:
    """Return the page."""
    return _file("index.html")


@router.get("/console/{name}")
async def send_file(name: str) -> Response:
    """Return a file of the page."""
    return _file(name)


def _file(name: str) -> Response:
    if name not in {each.name for each in _STATIC.iterdir()}:
        raise HTTPException(404, f"the console has no file {name!r}; open /console/")
    path = _STATIC / name
    return FileResponse(path, media_type=_TYPES[path.suffix], headers=HEADERS)
