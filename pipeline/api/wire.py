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
class ErrorAnswer:
    """An answer that is an error, before it has a form. `handshake`: of a WebSocket, instead of its upgrade."""

    status: int
    sentence: str
    headers: Mapping[str, str] = field(default_factory=dict)
    handshake: bool = False


ErrorForm = Callable[[ErrorAnswer], Response]


@dataclass(frozen=True)
class WirePath:
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
class WireResources:
    """What a wire is served with. `server`: this server's name, unique among those on one pipeline database."""

    config: Config
    database: Pool
    wakeups: WakeupListener
    server: str


class WireService(Protocol):
    """A wire while it is served."""

    @property
    def routes(self) -> APIRouter:
        """Its endpoints; none of them is in OpenAPI."""

    async def close(self) -> None:
        """End what waits or streams, within seconds; what comes from then on is refused."""


@dataclass(frozen=True)
class WireProtocol:
    """What the clients of one other system speak.

    `forms` has the form of errors by their status; those of every other status have the form `otherwise`. Its clients
    always send a Bearer where `wants_bearer`: of any value, where none is needed.
    """

    name: str
    paths: tuple[WirePath, ...]
    forms: Mapping[int, ErrorForm]
    otherwise: ErrorForm
    serve: Callable[[WireResources], WireService]
    wants_bearer: bool = False

    def find_path(self, path: str) -> WirePath | None:
        """The place with that path; None when it is not one of this wire."""
        return next((each for each in self.paths if each.matches(path)), None)

    def answer(self, failure: ErrorAnswer) -> Response:
        """The failure as these clients know it."""
        return self.forms.get(failure.status, self.otherwise)(failure)


@dataclass(frozen=True)
class WireMatch:
    """Where a request goes on a wire. `is_open`: it is answered without the token."""

    wire: WireProtocol
    path: WirePath
    is_open: bool


class ServedWires:
    """The wires that a server serves; all others are as if they did not exist."""

    def __init__(self, wires: Iterable[WireProtocol], open_wires: Iterable[str] = ()) -> None:
        self.wires = tuple(wires)
        self._open = frozenset(open_wires)

    def match(self, path: str) -> WireMatch | None:
        """Where on a wire that path leads; None: elsewhere."""
        for wire in self.wires:
            if (wire_path := wire.find_path(path)) is not None:
                return WireMatch(wire, wire_path, wire.name in self._open)
        return None
