"""Describes wires, the protocols of other systems: their paths, the form of their errors, and which are served."""

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
    """The content of an answer that reports an error; a wire gives it its form.

    `handshake`: the answer refuses the handshake of a WebSocket.
    """

    status: int
    sentence: str
    headers: Mapping[str, str] = field(default_factory=dict)
    handshake: bool = False


ErrorForm = Callable[[ErrorAnswer], Response]


@dataclass(frozen=True)
class WirePath:
    """A path of a wire, such as `/items/{id}`. `get_changes`: a GET of this path changes something, as a POST would."""

    path: str
    get_changes: bool = False

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return compile_path(self.path)[0]

    def matches(self, path: str) -> bool:
        """True if the path of a request matches."""
        return self._pattern.match(path) is not None


@dataclass(frozen=True)
class WireResources:
    """The resources that a wire uses. `server`: this server's name, unique among those on one pipeline database."""

    config: Config
    database: Pool
    wakeups: WakeupListener
    server: str


class WireService(Protocol):
    """A wire while it is served."""

    @property
    def routes(self) -> APIRouter:
        """Return the endpoints of the wire; none of them is in OpenAPI."""

    async def close(self) -> None:
        """End waiting and streaming requests within seconds, and refuse later ones."""


@dataclass(frozen=True)
class WireProtocol:
    """The protocol of another system, by which that system's clients can use this server.

    `forms`: the form of errors by status; `otherwise`: the form of all others. `wants_bearer`: the clients must send a
    header Authorization: Bearer, with any value if no token is needed.
    """

    name: str
    paths: tuple[WirePath, ...]
    forms: Mapping[int, ErrorForm]
    otherwise: ErrorForm
    serve: Callable[[WireResources], WireService]
    wants_bearer: bool = False

    def find_path(self, path: str) -> WirePath | None:
        """Return the wire path that this path matches, or None."""
        return next((each for each in self.paths if each.matches(path)), None)

    def answer(self, failure: ErrorAnswer) -> Response:
        """Return the error in the form that these clients expect."""
        return self.forms.get(failure.status, self.otherwise)(failure)


@dataclass(frozen=True)
class WireMatch:
    """The wire to which a request belongs, and the matching path. `is_open`: the request needs no token."""

    wire: WireProtocol
    path: WirePath
    is_open: bool


class ServedWires:
    """The wires that a server serves; their clients cannot reach any other wire."""

    def __init__(self, wires: Iterable[WireProtocol], open_wires: Iterable[str] = ()) -> None:
        self.wires = tuple(wires)
        self._open = frozenset(open_wires)

    def match(self, path: str) -> WireMatch | None:
        """Return the wire to which this path of a request belongs; None if no served wire has such a path."""
        for wire in self.wires:
            if (wire_path := wire.find_path(path)) is not None:
                return WireMatch(wire, wire_path, wire.name in self._open)
        return None
