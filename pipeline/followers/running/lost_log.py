"""Finds out whether the log lost events that a follower has applied, because the log was restored."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.errors import CursorExpiredError
from pipeline.followers.applying.position import FollowerPosition
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement


@dataclass(frozen=True)
class _PositionInLog:
    """The row of `is_in_log.sql`. `jumped`, `ahead`: the last seq of the log before the lost ones."""

    jumped: int | None
    ahead: int | None
    differs: bool


def explain_loss(log: Connection, here: FollowerPosition) -> str | None:
    """Return why a follower at this position may have events that the log lost; None if the log lost none."""
    seen = queries.one(log, _PositionInLog, statement("followers.running", "is_in_log"), vars(here))
    assert seen is not None  # noqa: S101  one row in any case
    if (before := seen.jumped if seen.jumped is not None else seen.ahead) is not None:
        return f"the log has no events between seq {before} and that one"
    return "the log has another event there" if seen.differs else None


def require_in_log(log: Connection, here: FollowerPosition) -> None:
    """Check the position in a new session with the log. Raises CursorExpiredError."""
    if reason := explain_loss(log, here):
        raise CursorExpiredError(
            f"the follower is at seq {here.seq}, and {reason}: the log was restored to an earlier state, so the"
            " follower may have changes that the log lacks"
        )
