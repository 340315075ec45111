"""Every kind of table at once on one source, replicated by the real worker and shuffler, and followed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

from pipeline.config.settings import Config
from pipeline.server import schedule
from tests.fidelity.tables.case import AtFollower, Event, Kind
from tests.fidelity.tables.followed import FollowerOfKinds, followed
from tests.fixtures.postgres import Cluster
from tests.fixtures.stage import Stage, databases

THEIRS = {
    "listed": "create publication listed",
    "by_schema": "create publication by_schema",
    "through_root": "create publication through_root with (publish_via_partition_root)",
    "everything": "create publication everything for all tables",
}
"""Publications that users made before the server came; kinds add to them."""
_EVENTS = """
    select action, source_table_schema as schema, source_table_name as table, record_pk, record, changes,
        coalesce(unchanged_columns, '{}') as unchanged, exact
    from public.sequin_events where source_table_oid <> 0 order by seq
"""


@dataclass(frozen=True)
class Played:
    """What has become of kinds, by schema: their events, and what followers have."""

    events: dict[str, list[Event]]
    followers: dict[str, AtFollower]


class Playing(Stage):
    """One source with these kinds and its log."""

    def __init__(self, config: Config, kinds: Sequence[Kind]) -> None:
        super().__init__(config)
        self.kinds = kinds

    def play(self, cluster: Cluster, *, follow: bool) -> Played:
        """Everything of all kinds, in one run of the server. `cluster`: that of the followers, if any."""
        if made := THEIRS.get(self.config.publication):
            self.run(made)
        for kind in self.kinds:
            self.run(f"create schema {kind.schema}")
            self._run(kind, kind.before)
        self.start()
        with followed(self, cluster, self.kinds if follow else ()) as followers:
            for number in range(max(len(kind.steps) for kind in self.kinds)):
                self._step({kind.schema: kind.steps[number : number + 1] for kind in self.kinds}, followers)
            events = self._events()
            self._step({kind.schema: (kind.after,) for kind in self.kinds if kind.after}, followers)
            outcomes = [each.outcomes() for each in followers]
        return Played(events, {schema: outcome for found in outcomes for schema, outcome in found.items()})

    def _step(self, statements: dict[str, tuple[str, ...]], followers: Sequence[FollowerOfKinds]) -> None:
        """One of each kind, by schema, until it has arrived, and followers have it."""
        for kind in self.kinds:
            self._run(kind, *statements.get(kind.schema, ()))
        head = self.arrive()
        schedule.publish_new_tables(self.config)
        for each in followers:
            each.settle(head)

    def _run(self, kind: Kind, *statements: str) -> None:
        self.run(f"set search_path = {kind.schema}, public")
        for statement in statements:
            try:
                self.run(statement.replace("{schema}", kind.schema))
            except psycopg.Error as error:
                error.add_note(f"in {kind.name!r}: {statement}")
                raise

    def _events(self) -> dict[str, list[Event]]:
        found: dict[str, list[Event]] = defaultdict(list)
        for row in self.look(_EVENTS):
            schema = row.pop("schema")
            row["unchanged"] = tuple(row["unchanged"])
            found[schema].append(Event(**row))
        return found


@contextmanager
def played(
    source: Cluster, database: Cluster, kinds: Sequence[Kind], *, follow: bool, **given: Any
) -> Iterator[Played]:
    """These kinds, perhaps with followers beside the source. `given`: settings of the server."""
    with databases(source, database, **given) as config, Playing(config, kinds) as stage:
        yield stage.play(source, follow=follow)
