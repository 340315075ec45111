"""`pipeline verify --content` runs beside everything else: it may fail, but must never find a difference."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from unittest import mock

import psycopg

from pipeline.comparing import comparison
from pipeline.config.settings import Config
from pipeline.errors import PipelineError
from pipeline.operate.verify import content
from pipeline.operate.verify.verifications import TableVerification
from tests.fixtures.background import BackgroundThread
from tests.fixtures.waiting import eventually

EVERY = 0.5
"""Seconds between two runs."""
ROWS_PER_PART, PARTS_PER_LOOK, STALLED_SECONDS = 100, 4, 5.0
"""Small tables have several parts, too; where the log stands still, the next run may find it going on."""


class Verifier(BackgroundThread):
    """Compares all tables again and again. `rows`: of tables that were compared; `refused`: why others were not."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self._config = config
        self.rows: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.fault: str | None = None

    def work(self) -> None:
        while self.fault is None and not self.stopped.wait(EVERY):
            try:
                self.look()
            except (PipelineError, psycopg.Error) as error:
                self.refused[type(error).__name__] += 1

    def at_rest(self, tend: Callable[[], None]) -> Counter[str]:
        """Compare again when all has arrived; returns how many rows were compared in all, by table.

        The last fault may still have its effect, so a run that is refused is tried again. `tend`: servers that ended.
        """

        def compared() -> None:
            tend()
            self.look(comparison.STALLED_SECONDS)

        if self.fault is None:
            eventually(compared, errors=(PipelineError, psycopg.Error))
        return self.rows

    def look(self, stalled: float = STALLED_SECONDS) -> list[TableVerification]:
        """Once, of all tables."""
        divided = self._divided()
        with (
            mock.patch.object(comparison, "ROWS_PER_PART", ROWS_PER_PART),
            mock.patch.object(comparison, "PARTS_PER_LOOK", PARTS_PER_LOOK),
            mock.patch.object(comparison, "STALLED_SECONDS", stalled),
        ):
            found = content.run(self._config, [], stopping=self.stopped.is_set, asked_by="command")
        divided |= self._divided()  # one may have been renamed
        for table in found.tables:
            self.rows[table.table] += table.rows
            if table.reason:
                self.refused[table.reason] += 1
            if table.differing and self.fault is None and table.table not in divided:
                shown = [dataclasses.asdict(each) for each in table.differences[:3]]
                self.fault = f"verify --content finds {table.differing} differences in {table.table}: {shown}"
        return list(found.tables)

    def _divided(self) -> set[str]:
        """Tables whose rows come and go with partitions that are attached, detached and dropped, without an event."""
        with psycopg.connect(self._config.source) as source:
            query = """
                select n.nspname || '.' || c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
                where c.relkind = 'p'"""
            return {name for (name,) in source.execute(query)}
