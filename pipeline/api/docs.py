"""/docs with every file it needs, so that it works where nothing else is reachable."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles

from pipeline.api.problems import Problem

_ASSETS = "/docs/assets"
_DESCRIPTION = """Every committed change of a Postgres database, in commit order: read the log, or be handed changes.

Errors are `application/problem+json` with one sentence in `title`. With PIPELINE_API_TOKEN every request but health
wants `Authorization: Bearer`. `docs/reference/websocket.md` describes the stream over WebSocket, which OpenAPI cannot.
"""


def install(app: FastAPI) -> None:
    """The page, its files, and /openapi.json, which says what FastAPI does not know: the token and the errors."""
    app.description = _DESCRIPTION
    app.mount(_ASSETS, StaticFiles(directory=_static()), name="assets")
    app.add_api_route("/docs", _page, include_in_schema=False, response_class=HTMLResponse)

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _described(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _static() -> Path:
    """Where the package is; it is not imported, only its files are wanted."""
    found = find_spec("fastapi_offline")
    assert found is not None and found.submodule_search_locations  # noqa: S101  a dependency
    return Path(found.submodule_search_locations[0]) / "static"


def _page() -> HTMLResponse:
    return get_swagger_ui_html(
        openapi_url="/openapi.json",
        title="WAL Pipeline Server",
        swagger_js_url=f"{_ASSETS}/swagger-ui-bundle.js",
        swagger_css_url=f"{_ASSETS}/swagger-ui.css",
        swagger_favicon_url=f"{_ASSETS}/favicon.png",
    )


def _described(app: FastAPI) -> dict[str, Any]:
    schema = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes, tags=app.openapi_tags
    )
    parts = schema.setdefault("components", {})
    parts.setdefault("schemas", {})["Problem"] = Problem.model_json_schema()
    for name in ("HTTPValidationError", "ValidationError"):
        parts["schemas"].pop(name, None)
    parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer", "description": "PIPELINE_API_TOKEN"}}
    schema["security"] = [{"token": []}, {}]
    return schema
