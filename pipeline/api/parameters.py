"""Query parameters that an endpoint does not have: refused, since a mistyped filter would be none at all."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import Request
from fastapi.dependencies.models import Dependant
from starlette.exceptions import HTTPException


async def refuse_unknown(request: Request) -> None:
    """A dependency of every endpoint with parameters. Raises HTTPException with the name."""
    known = list(_names(request.scope["route"].dependant))
    if unknown := set(request.query_params) - set(known):
        use = f"use {', '.join(known)}" if known else "this path takes none"
        raise HTTPException(422, f"unknown parameter {min(unknown)!r}; {use}")


def _names(dependant: Dependant) -> Iterator[str]:
    """What it takes, and then what its dependencies take."""
    yield from (each.alias for each in dependant.query_params)
    for each in dependant.dependencies:
        yield from _names(each)
