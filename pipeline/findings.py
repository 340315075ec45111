"""A finding of `pipeline check`: the problem, its severity, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, LiteralString

import psycopg
from psycopg.sql import SQL, Composable

from pipeline.errors import DatabaseUnavailableError, PipelineError, SlotInUseError
from pipeline.postgres import connections

Place = Literal["source", "pipeline"]
"""The database that a finding is about."""


@dataclass(frozen=True)
class SqlRemedy:
    """SQL by which an administrator of a database cures a finding. The statements change no table of a user.

    `notes`: what the administrator should know, each on one line; names in a note are JSON.
    """

    at: Place
    statements: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class CheckFinding:
    """One result of `pipeline check`. An error means that `serve` would not work.

    `name` is stable; `remedy` is empty if nothing needs to be done. `waits`: `serve` starts in spite of this error,
    because the error can disappear while the server runs, by itself or by a user's action. `cure`: the remedy as SQL,
    if SQL is enough.
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
        """The statements of the cure; empty if SQL cures nothing."""
        return list(self.cure.statements) if self.cure else []


CheckFindings = Iterator[CheckFinding]


def of_error(name: str, error: PipelineError) -> CheckFinding:
    """Turn an error into a finding: its remedy is the part of the error's text after the last semicolon."""
    text, separator, remedy = str(error).rpartition("; ")
    waits = isinstance(error, DatabaseUnavailableError | SlotInUseError)
    return (
        CheckFinding("error", name, text, remedy, waits)
        if separator
        else CheckFinding("error", name, remedy, waits=waits)
    )


def guarded(name: str, check: Callable[[], Iterable[CheckFinding]]) -> CheckFindings:
    """Yield the findings of `check`. If it raises an error of the product or of Postgres, yield this as a finding."""
    try:
        yield from check()
    except PipelineError as error:
        yield of_error(name, error)
    except psycopg.Error as error:
        text = f"this check failed: {connections.one_line(error)}"
        yield CheckFinding("error", name, text, "fix that error and check again", waits=True)


def first_names(names: Iterable[object], shown: int = 5) -> str:
    """Return the first `shown` names of a list in one line, and the number of the others."""
    listed = [str(name) for name in names]
    more = len(listed) - shown
    return ", ".join(listed[:shown]) + (f" and {more} more" if more > 0 else "")


def quoted(connection: psycopg.Connection[Any], text: LiteralString, **names: Composable) -> str:
    """Fill quoted names into a statement, and return it as text that an administrator can run."""
    return SQL(text).format(**names).as_string(connection)
