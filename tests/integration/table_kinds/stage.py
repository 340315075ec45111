"""Every kind of table at once on one source, replicated by the real worker and shuffler."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

from pipeline import config as settings
from pipeline import schedule
from pipeline.catalog import sources
from pipeline.config import Config
from pipeline.events.log import DEFAULT
from pipeline.shuffle.worker import Shuffler
from tests.fixtures.postgres import Cluster, unique
from tests.fixtures.replicating import Replicating
from tests.fixtures.waiting import eventually
from tests.integration.table_kinds.case import Event, Kind

THEIRS = {
    "listed": "create publication listed",
    "by_schema": "create publication by_schema",
    "through_root": "create publication through_root with (publish_via_partition_root)",
    "everything": "create publication everything for all tables",
}
"""Publications that users made before the server came; kinds add to them."""
TIMEOUT = 120
"""Seconds; a hundred tables are looked up after each step, on a machine that may be busy."""
_EVENTS = """
    select action, source_table_schema as schema, source_table_name as table, record_pk, record, changes,
        coalesce(unchanged_columns, '{}') as unchanged, exact
    from public.sequin_events where source_table_oid <> 0 order by seq
"""
_ARRIVED = "select exists (select from public.sequin_events where source_table_oid = 0 and record ->> 'content' = %s)"


class Stage:
    """One source with these kinds and its log."""

    def __init__(self, config: Config, kinds: Sequence[Kind]) -> None:
        self.config = config
        self.kinds = kinds
        self.source = psycopg.connect(config.source, autocommit=True)
        self.log = psycopg.connect(config.database, autocommit=True)
        self._marks = itertools.count()

    def close(self) -> None:
        self.source.close()
        self.log.close()

    def play(self) -> dict[str, list[Event]]:
        """Everything of all kinds, in one run of the server; the events by schema."""
        if made := THEIRS.get(self.config.publication):
            self.source.execute(made.encode())
        for kind in self.kinds:
            self.source.execute(f"create schema {kind.schema}")
            self._run(kind, kind.before)
        with Replicating(self.config) as replicating:
            eventually(replicating._streams, TIMEOUT)
            for number in range(max(len(kind.steps) for kind in self.kinds)):
                for kind in self.kinds:
                    self._run(kind, *kind.steps[number : number + 1])
                self._wait(replicating)
                schedule.publish_new_tables(self.config)
        return self._events()

    def _run(self, kind: Kind, *statements: str) -> None:
        self.source.execute(f"set search_path = {kind.schema}, public")
        for statement in statements:
            try:
                self.source.execute(statement.replace("{schema}", kind.schema).encode())
            except psycopg.Error as error:
                error.add_note(f"in {kind.name!r}: {statement}")
                raise

    def _wait(self, replicating: Replicating) -> None:
        mark = str(next(self._marks))
        self.source.execute("select pg_logical_emit_message(true, 'mark', %s)", [mark])

        def arrived() -> bool:
            if replicating._error is not None:
                raise replicating._error
            stored = sources.find(self.log, None)
            assert stored is not None
            Shuffler(self.log, stored.id, DEFAULT, stopping=lambda: False).step()
            row = self.log.execute(_ARRIVED, [mark]).fetchone()
            return row is not None and row[0]

        eventually(arrived, TIMEOUT)

    def _events(self) -> dict[str, list[Event]]:
        found: dict[str, list[Event]] = defaultdict(list)
        with self.log.cursor(row_factory=psycopg.rows.dict_row) as cursor:
            for row in cursor.execute(_EVENTS):
                schema = row.pop("schema")
                row["unchanged"] = tuple(row["unchanged"])
                found[schema].append(Event(**row))
        return found


@contextmanager
def played(source: Cluster, database: Cluster, kinds: Sequence[Kind], **given: Any) -> Iterator[dict[str, list[Event]]]:
    """The events of these kinds. `given`: settings of the server."""
    with source.database("kinds") as source_dsn, database.database("events", database.template) as dsn:
        stage = Stage(settings.load(source_dsn=source_dsn, database_dsn=dsn, slot=unique("slot"), **given), kinds)
        try:
            yield stage.play()
        finally:
            stage.close()
