"""Confirm which rows of a table really differ between the source and the log, and in which columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pipeline.capture.schema_history.versions import PublishedColumn
from pipeline.comparing.comparison import ContentComparison
from pipeline.comparing.log_state import EventRow, Key, LogState

KEYS_PER_LOOK = 500
"""The number of complete rows that one query reads, at the source and in the log."""
Kind = Literal["not in the log", "not in the source", "differs"]


@dataclass(frozen=True)
class ValueDifference:
    """A column whose value differs: its text at the source and in the log, None for null.

    `absent`: the log has no such value, not even null.
    """

    column: str
    source: str | None
    log: str | None
    absent: bool = False


@dataclass(frozen=True)
class DifferingRow:
    """A row that differs. `key`: texts of its key. `events_table`, `seq`: its newest event, if the log has the row."""

    key: Key
    kind: Kind
    values: Sequence[ValueDifference] = ()
    events_table: str | None = None
    seq: int | None = None


@dataclass
class ConfirmedDifferences:
    """The rows of a batch that differ.

    `unknown`: the number of rows of which the log lacks some values, so these values were not compared.
    """

    differences: list[DifferingRow] = field(default_factory=list)
    unknown: int = 0


def confirm(comparison: ContentComparison, state: LogState, keys: Sequence[Key]) -> Iterator[ConfirmedDifferences]:
    """Compare these rows one by one as of the same snapshot on both sides; yield a result for each batch."""
    distinct = list(dict.fromkeys(keys))
    for at in range(0, len(distinct), KEYS_PER_LOOK):
        some = distinct[at : at + KEYS_PER_LOOK]
        snapshot, at_source = comparison.rows.by_key(some)
        comparison.wait_for_log()
        state.read_on()
        logged = state.newest(some, snapshot)
        found = ConfirmedDifferences()
        for key in some:
            _compare(comparison.table.columns, key, at_source.get(key), logged.get(key), found)
        yield found


def _compare(
    columns: Sequence[PublishedColumn],
    key: Key,
    at_source: Sequence[str | None] | None,
    logged: EventRow | None,
    found: ConfirmedDifferences,
) -> None:
    if logged is not None and logged.parked:
        found.unknown += 1
    elif at_source is None or logged is None:
        if at_source is not None:
            found.differences.append(DifferingRow(key, "not in the log"))
        elif logged is not None:
            found.differences.append(DifferingRow(key, "not in the source", (), str(logged.events), logged.seq))
    else:
        unknown = [
            column.name in logged.left_out or (older and source is not None)
            for column, source, older in zip(columns, at_source, logged.older, strict=True)
        ]
        found.unknown += any(unknown)
        if differing := list(_values(columns, at_source, logged, unknown)):
            found.differences.append(DifferingRow(key, "differs", differing, str(logged.events), logged.seq))


def _values(
    columns: Iterable[PublishedColumn], at_source: Sequence[str | None], logged: EventRow, unknown: Sequence[bool]
) -> Iterator[ValueDifference]:
    for place, column in enumerate(columns):
        source, log = at_source[place], logged.texts[place]
        absent = not logged.written[place] and not logged.older[place]
        if not unknown[place] and (source != log or absent):
            yield ValueDifference(column.name, source, log, absent=absent)
