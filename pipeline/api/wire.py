"""What a wire is: its paths, which of their GETs change something, the form of its errors; and which are served."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from fastapi import APIRouter, Response
from starlette.routing import compile_path

from pipeline.config.settings import Config

if TYPE_CHECKING:
    from pipeline.log.wakeups import WakeupListener
    from pipeline.postgres.pool import Pool


@dataclass(frozen=True)
class Failure:
    """An answer that is an error, before it has a form. `handshake`: of a WebSocket, instead of its upgrade."""

    status: int
    sentence: str
    headers: Mapping[str, str] = field(default_factory=dict)
    handshake: bool = False


Form = Callable[[Failure], Response]


@dataclass(frozen=True)
class Place:
    """A path of a wire, written as routes are. `get_changes`: a GET of it changes something, as if it were a POST."""

    path: str
    get_changes: bool = False

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return compile_path(self.path)[0]

    def matches(self, path: str) -> bool:
        """Whether that is a path of this place."""
        return self._pattern.match(path) is not None


@dataclass(frozen=True)
class Surroundings:
    """What a wire is served with. `server`: this server's name, unique among those on one pipeline database."""

    config: Config
    database: Pool
    wakeups: WakeupListener
    server: str


class Service(Protocol):
    """A wire while it is served."""

    @property
    def routes(self) -> APIRouter:
        """Its endpoints; none of them is in OpenAPI."""

    async def close(self) -> None:
        """End what waits or streams, within seconds; what comes from then on is refused."""


@dataclass(frozen=True)
class Wire:
    """What the clients of one other system speak.

    `forms` has the form of errors by their status; those of every other status have the form `otherwise`. Its clients
    always send a Bearer where `wants_bearer`: of any value, where none is needed.
    """

    name: str
    places: tuple[Place, ...]
    forms: Mapping[int, Form]
    otherwise: Form
    serve: Callable[[Surroundings], Service]
    wants_bearer: bool = False

    def place(self, path: str) -> Place | None:
        """The place with that path; None when it is not one of this wire."""
        return next((place for place in self.places if place.matches(path)), None)

    def answer(self, failure: Failure) -> Response:
        """The failure as these clients know it."""
        return self.forms.get(failure.status, self.otherwise)(failure)


@dataclass(frozen=True)
class At:
    """Where a request goes on a wire. `is_open`: it is answered without the token."""

    wire: Wire
    place: Place
    is_open: bool


class Served:
    """The wires that a server serves; all others are as if they did not exist."""

    def __init__(self, wires: Iterable[Wire], open_wires: Iterable[str] = ()) -> None:
        self.wires = tuple(wires)
        self._open = frozenset(open_wires)

    def at(self, path: str) -> At | None:
        """Where on a wire that path leads; None: elsewhere."""
        for wire in self.wires:
            if (place := wire.place(path)) is not None:
                return At(wire, place, wire.name in self._open)
        return None
