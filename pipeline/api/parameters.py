"""Query parameters that an endpoint does not have: refused, since a mistyped filter would be none at all."""

from __future__ import annotations

from fastapi import Request
from starlette.exceptions import HTTPException


def refuse_unknown(request: Request) -> None:
    """A dependency of every endpoint with parameters. Raises HTTPException with the name."""
    operation = request.app.openapi()["paths"][request.scope["route"].path][request.method.lower()]
    known = [each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"]
    if unknown := set(request.query_params) - set(known):
        use = f"use {', '.join(known)}" if known else "this path takes none"
        raise HTTPException(422, f"unknown parameter {min(unknown)!r}; {use}")
