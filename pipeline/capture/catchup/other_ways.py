"""How a worker's writer may write otherwise than by staging, as the server says that knows the settings."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pipeline.log.writing.staged import Writer
from pipeline.postgres.connections import Connection


def _none(_writer: Writer, _behind: Callable[[], int | None]) -> None:
    """It stages everything."""


def _no_seqs(_connection: Connection, _source: uuid.UUID, spans: Sequence[int]) -> list[int | None]:
    return [None for _ in spans]


@dataclass(frozen=True)
class OtherWays:
    """`attach`: to the writer of worker 0, given how many bytes of WAL it is behind. `reserve`: the first seq of each
    part that is to be read beside it, by the bytes of WAL from worker 0's position to where it begins.
    """

    attach: Callable[[Writer, Callable[[], int | None]], None] = _none
    reserve: Callable[[Connection, uuid.UUID, Sequence[int]], Sequence[int | None]] = _no_seqs
