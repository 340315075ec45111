"""Rows, migrations and tools of one source, in an order that only the seed decides."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

import psycopg

from pipeline.errors import PipelineError
from tests.torture.ordinary_schema import jobs, rows
from tests.torture.ordinary_schema.jobs import Job, Kind
from tests.torture.ordinary_schema.source import BusyTableError, Source

JOBS, NEWEST = 4, 3_000
"""How many jobs are under way at once; how many statements are kept for a report."""


@dataclass
class _Begun:
    """A job that is under way, and the tables that no other may begin with."""

    kind: str
    job: Job
    claimed: set[str] = field(default_factory=set)


class Writer:
    """`counts`: transactions, and jobs by kind; `refused`: why those ended that did not end well.

    `newest`: the newest statements, each with the time of day.
    """

    def __init__(self, source: Source, more: Mapping[str, Kind]) -> None:
        """`more`: other jobs."""
        self._source = source
        self._kinds = {**jobs.kinds(source), **more}
        self._begun: list[_Begun] = []
        self.counts, self.refused = Counter[str](), Counter[str]()
        self.newest = deque[str](maxlen=NEWEST)

    def step(self) -> None:
        """Rows are changed, or a job goes on, or begins."""
        kind = self._source.chance.random()
        if kind < 0.5:
            self._change()
        elif len(self._begun) < JOBS and kind < 0.65:
            self._begin()
        elif self._begun:
            self._go_on(self._source.chance.choice(self._begun))

    def end(self, kind: str) -> None:
        """Let a job of this kind come to its end."""
        while found := [each for each in self._begun if each.kind == kind]:
            self._go_on(found[0])

    def touch(self) -> None:
        """Let each table have an event of the form that it has by now."""
        for statements in rows.touch(self._source):
            for statement in statements:
                with suppress(psycopg.Error):  # an old row whose check refuses it by now
                    if self._run(statement):
                        break

    def close(self) -> None:
        for each in self._begun:
            each.job.close()

    def _run(self, statement: str) -> int:
        self.newest.append(f"{datetime.now():%T.%f} {statement}")
        return self._source.connection.execute(statement.encode()).rowcount

    def _change(self) -> None:
        try:
            self._run("; ".join(rows.change(self._source)))
            self.counts["transactions"] += 1
        except psycopg.Error as error:
            self.refused[f"rows: {type(error).__name__}"] += 1

    def _begin(self) -> None:
        kind = self._source.chance.choice(list(self._kinds))
        if all(each.kind != kind for each in self._begun):
            self._begun.append(_Begun(kind, self._kinds[kind](self._source)))
            self._go_on(self._begun[-1])

    def _go_on(self, begun: _Begun) -> None:
        before = set(self._source.busy)
        try:
            statement = next(begun.job)
            begun.claimed |= self._source.busy - before
            if statement:
                self._run(statement)
                self.counts["transactions"] += 1
            return
        except StopIteration:
            self.counts[begun.kind] += 1
        except BusyTableError:
            pass
        except (psycopg.Error, PipelineError, ValueError) as error:
            said = str(error).partition("\n")[0]
            self.refused[f"{begun.kind}: {type(error).__name__}: {said[:110]}"] += 1
        self._source.busy -= begun.claimed
        self._begun.remove(begun)
