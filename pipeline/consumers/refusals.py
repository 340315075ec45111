"""What the SQL functions refuse, by its SQLSTATE, as our errors and as one sentence."""

from __future__ import annotations

import psycopg

from pipeline import db
from pipeline.errors import (
    ConfigError,
    ConsumerError,
    CursorHeld,
    PipelineError,
    UnknownConsumer,
    WrongKind,
)

_ERRORS: dict[str, type[PipelineError]] = {
    "42704": UnknownConsumer,
    "42710": ConsumerError,  # the name is taken
    "22023": ConfigError,  # a wrong argument
    "42809": WrongKind,
    "55006": CursorHeld,
    "22003": ConsumerError,  # retention has dropped what comes next
}


def refusal(error: psycopg.Error) -> PipelineError | None:
    """The error that says so; None when it is not a refusal of these functions."""
    kind = _ERRORS.get(error.sqlstate or "")
    return kind(sentence(error)) if kind else None


def sentence(error: psycopg.Error) -> str:
    """What the function says, and what it advises."""
    said, hint = db.one_line(error), (error.diag.message_hint or "").strip().rstrip(".")
    return f"{said}; {hint[0].lower()}{hint[1:]}" if hint else said
