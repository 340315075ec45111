"""A finding of the preflight: what it is, how bad, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, LiteralString

import psycopg
from psycopg.sql import SQL, Composable

from pipeline.errors import DatabaseUnavailableError, PipelineError, SlotInUseError
from pipeline.postgres import connections

Place = Literal["source", "pipeline"]
"""Which of the two databases."""


@dataclass(frozen=True)
class SqlRemedy:
    """Statements by which an administrator of a database cures a finding there. They change no table of a user.

    `notes`: what that administrator should know, each on one line; a name in it is JSON.
    """

    at: Place
    statements: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class CheckFinding:
    """`name` is stable; `remedy` is empty when nothing needs to be done. An error means that `serve` would not work.

    `waits`: of an error that time, a person at the running server or its retries can cure: `serve` starts with it.
    `cure`: the remedy as SQL, where that is all it takes.
    """

    level: Literal["ok", "warning", "error"]
    name: str
    text: str
    remedy: str = ""
    waits: bool = False
    cure: SqlRemedy | None = None

    JSON: ClassVar = ("level", "name", "text", "remedy", "sql")

    @property
    def sql(self) -> list[str]:
        """The statements of the cure; empty where SQL cures nothing."""
        return list(self.cure.statements) if self.cure else []


CheckFindings = Iterator[CheckFinding]


def of_error(name: str, error: PipelineError) -> CheckFinding:
    """The finding of an error: its text, and its remedy after the last semicolon."""
    text, separator, remedy = str(error).rpartition("; ")
    waits = isinstance(error, DatabaseUnavailableError | SlotInUseError)
    return (
        CheckFinding("error", name, text, remedy, waits)
        if separator
        else CheckFinding("error", name, remedy, waits=waits)
    )


def guarded(name: str, look: Callable[[], Iterable[CheckFinding]]) -> CheckFindings:
    """What `look` finds; an error that it raises is a finding of this name."""
    try:
        yield from look()
    except PipelineError as error:
        yield of_error(name, error)
    except psycopg.Error as error:
        text = f"cannot be checked: {connections.one_line(error)}"
        yield CheckFinding("error", name, text, "fix that and check again", waits=True)


def first_names(names: Iterable[object], shown: int = 5) -> str:
    """The first names of a list, and how many more there are."""
    listed = [str(name) for name in names]
    more = len(listed) - shown
    return ", ".join(listed[:shown]) + (f" and {more} more" if more > 0 else "")


def quoted(connection: psycopg.Connection[Any], text: LiteralString, **names: Composable) -> str:
    """A statement with its names quoted, ready to be run by somebody else."""
    return SQL(text).format(**names).as_string(connection)
