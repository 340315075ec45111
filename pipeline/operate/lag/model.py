"""Lag explained: how far each stage is behind the source, in bytes and seconds, and what limits it."""

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
"""What can limit, in the order in which changes pass; `transaction`: an open one makes the source keep WAL."""

PARTS: tuple[Part, ...] = get_args(Part)
LATE_SECONDS = 2 * BEAT_SECONDS
"""Changes that arrive within so many seconds are not late: samples and reports are a second apart, beats two."""


@dataclass(frozen=True)
class LagStage:
    """How far a stage is: every transaction that commits before `lsn` has passed it.

    `behind_bytes` is the source's WAL after that, `behind_seconds` the age of its oldest change (None: not known);
    `own_bytes` and `own_seconds` are what this stage adds to the one before. `reader`: whose position it is.
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
    """A part that delays changes: why, and what to do."""

    part: Part
    text: str
    remedy: str = ""


@dataclass(frozen=True)
class LagReport:
    """`stages` in the order in which changes pass them; empty when the source does not answer.

    `limits`: what delays changes, the main cause first; never empty.
    """

    limits: list[LagLimit]
    written_lsn: lsn.Shown | None = None
    stages: list[LagStage] = field(default_factory=list)

    JSON: ClassVar = ("written_lsn", "stages", "limited_by", "also")

    def stage(self, name: str) -> LagStage | None:
        """The stage of this name, if there is one."""
        return next((stage for stage in self.stages if stage.stage == name), None)

    @property
    def limited_by(self) -> LagLimit:
        """The main cause."""
        return self.limits[0]

    @property
    def also(self) -> list[LagLimit]:
        """What else delays changes."""
        return self.limits[1:]


def is_late(seconds: float | None) -> bool:
    """Whether that is more than the measurement itself takes; an unknown lag is not late."""
    return seconds is not None and seconds >= LATE_SECONDS
