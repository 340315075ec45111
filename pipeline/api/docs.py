"""/docs, with every file that it needs, so that it works without internet access."""

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
_DESCRIPTION = """Every committed change of a Postgres database, in commit order: read the log, or receive changes.

Errors are `application/problem+json` with one sentence in `title`. With PIPELINE_API_TOKEN every request but health
needs `Authorization: Bearer`. `docs/reference/websocket.md` describes the stream over WebSocket, which OpenAPI cannot.
"""


def install(app: FastAPI) -> None:
    """Add the page, its files, and /openapi.json, with what FastAPI does not know: the token and the errors."""
    app.description = _DESCRIPTION
    app.mount(_ASSETS, StaticFiles(directory=_static()), name="assets")
    app.add_api_route("/docs", _page, include_in_schema=False, response_class=HTMLResponse)

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _described(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _static() -> Path:
    """The folder of the package's files; the package itself is not imported."""
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
