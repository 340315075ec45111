"""Refuses unknown query parameters, because a mistyped filter would otherwise be ignored."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import Request
from fastapi.dependencies.models import Dependant
from starlette.exceptions import HTTPException


async def refuse_unknown(request: Request) -> None:
    """Raise HTTPException if the request has an unknown query parameter. Endpoints use this as a dependency."""
    known = list(dict.fromkeys(_names(request.scope["route"].dependant)))
    if unknown := set(request.query_params) - set(known):
        use = f"use {', '.join(known)}" if known else "this path has no parameters"
        raise HTTPException(422, f"unknown parameter {min(unknown)!r}; {use}")


def _names(dependant: Dependant) -> Iterator[str]:
    """Yield the names of an endpoint's parameters, then those of its dependencies."""
    yield from (each.alias for each in dependant.query_params)
    for each in dependant.dependencies:
        yield from _names(each)
