"""A report of the lag: how far each stage is behind the source, in bytes and seconds, and which parts delay changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

from pipeline.postgres.role_locks import BEAT_SECONDS
from pipeline.wal import lsn

Part = Literal[
    "source",
    "worker",
    "decoding",
    "network",
    "staging",
    "shuffle",
    "consumer",
    "follower",
    "export",
    "transaction",
    "nothing",
]
"""The parts that can delay changes, in the order in which changes pass.

`transaction`: an open transaction makes the source keep WAL.
"""

PARTS: tuple[Part, ...] = get_args(Part)
LATE_SECONDS = 2 * BEAT_SECONDS
"""Changes that arrive within this many seconds are not late: two intervals between the signs of life of roles."""


@dataclass(frozen=True)
class LagStage:
    """The position of a stage: every transaction that commits before `lsn` has passed the stage.

    `behind_bytes` is the source's WAL after `lsn`, `behind_seconds` the age of the oldest change in it (None: unknown).
    `own_bytes` and `own_seconds` are the parts that this stage adds to the stage before. `reader`: the name of the
    reader whose position this is.
    """

    stage: str
    lsn: lsn.Shown
    behind_bytes: int
    behind_seconds: float | None
    own_bytes: int
    own_seconds: float | None
    reader: str | None = None


@dataclass(frozen=True)
class LagLimit:
    """A part that delays changes, why it does, and what to do."""

    part: Part
    text: str
    remedy: str = ""


@dataclass(frozen=True)
class LagReport:
    """The lag by stage, in the order in which changes pass; no stages if the source does not answer.

    `limits`: the parts that delay changes, the main cause first; never empty.
    """

    limits: list[LagLimit]
    written_lsn: lsn.Shown | None = None
    stages: list[LagStage] = field(default_factory=list)

    JSON: ClassVar = ("written_lsn", "stages", "limited_by", "also")

    def stage(self, name: str) -> LagStage | None:
        """Return the stage of this name; None if the report has no such stage."""
        return next((stage for stage in self.stages if stage.stage == name), None)

    @property
    def limited_by(self) -> LagLimit:
        """The main cause."""
        return self.limits[0]

    @property
    def also(self) -> list[LagLimit]:
        """The other causes."""
        return self.limits[1:]


def is_late(seconds: float | None) -> bool:
    """True if a lag is longer than the measurement itself takes; an unknown lag is not late."""
    return seconds is not None and seconds >= LATE_SECONDS
