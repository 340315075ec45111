"""The page of the console and its files, which are the same for all and need no token."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, Response
from fastapi.responses import FileResponse, RedirectResponse
from starlette.exceptions import HTTPException

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

router = APIRouter(include_in_schema=False)


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
