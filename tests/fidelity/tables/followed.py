"""Followers of kinds of tables: added as by default, and kept by what their process runs while the kinds are played."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import psycopg
import pytest
from psycopg import sql

from pipeline.followers import registry
from pipeline.followers.operating import adding, resync, verify
from pipeline.followers.registry import FollowerOptions, FollowerTable, RegisteredFollower
from pipeline.followers.running import copier, following
from pipeline.postgres import connections, session_settings
from tests.fidelity.tables.case import AtFollower, Kind, Stop
from tests.fixtures.copying import Running
from tests.fixtures.postgres import Cluster, unique
from tests.fixtures.stage import ARRIVAL, Stage
from tests.fixtures.waiting import eventually

_TABLES = """
    select c.relname::text, c.relkind::text, (
        select array_agg((a.attname::text, pg_catalog.format_type(a.atttypid, a.atttypmod)) order by a.attname)::text
        from pg_catalog.pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
    )
    from pg_catalog.pg_class c
    where c.relnamespace = pg_catalog.to_regnamespace(%s) and c.relkind in ('r', 'p', 'f') and not c.relispartition
"""
_COLUMNS = """
    select attname::text from pg_catalog.pg_attribute
    where attrelid = %s::regclass and attnum > 0 and not attisdropped order by attname
"""


class FollowerOfKinds:
    """One database that follows the schemas of these kinds; enter `running` first."""

    def __init__(self, stage: Stage, dsn: str, kinds: Sequence[Kind]) -> None:
        self._stage, self.kinds, self.name = stage, kinds, unique("follower")
        self.look = psycopg.connect(dsn, autocommit=True)
        self._expected = {kind.schema: list(kind.follower.stops) for kind in kinds}
        self._stops: dict[str, list[Stop]] = defaultdict(list)
        for kind in kinds:
            if kind.follower.prepared:
                self.look.execute(f"create schema {kind.schema}".encode())
                self._run(kind, kind.follower.prepared)
        options = FollowerOptions(tables=tuple(f"{kind.schema}.*" for kind in kinds))
        with connections.connect(stage.config.source, "source", settings=session_settings.SERVER) as source:
            adding.add(stage.config, source, stage.log, self.name, dsn, options)
        self.running = Running(stage, self._found.id, self.name)

    def settle(self, head: int) -> None:
        """Until it has all up to this seq, or has stopped for good; on the way what stops it is repaired."""
        eventually(lambda: self._settled(head), ARRIVAL)

    def _settled(self, head: int) -> None:
        found = self._found
        pending = [table for table in found.table_states if table.state != "following"]
        stopped: list[RegisteredFollower | FollowerTable] = [found, *pending]
        for each in stopped:
            if each.state == "stopped":
                self._mend(each)
        done = (found.state, found.seq >= head, pending) == ("following", True, []) or self._has_ended
        assert done, (found.state, found.reason, found.remedy, found.seq, head, pending)

    def _mend(self, found: RegisteredFollower | FollowerTable) -> None:
        for kind in self.kinds:
            said = self._neutral(kind, found.reason or ""), self._neutral(kind, found.remedy or "")
            expected = self._expected[kind.schema][:1]
            if said in [(stop.reason, stop.remedy) for stop in expected] and f"{kind.schema}." in (found.reason or ""):
                [stop] = expected
                self._stops[kind.schema].append(self._expected[kind.schema].pop(0))
                if stop.is_last:
                    self.running.stopped.set()
                if stop.repaired:
                    self._run(kind, stop.repaired)
                if stop.resync:
                    resync.resync(self._stage.log, self.name, [f"{kind.schema}.*"])

    @property
    def _has_ended(self) -> bool:
        return any(stop.is_last for stops in self._stops.values() for stop in stops)

    def _neutral(self, kind: Kind, text: str) -> str:
        """Without the names and numbers of this run."""
        text = text.replace(f"{kind.schema}.", "public.").replace(self.name, "NAME")
        return re.sub(r"\b(seqs?|to|skip-transaction NAME) \d+", r"\1 N", text)

    def _run(self, kind: Kind, statements: str) -> None:
        self.look.execute(f"set search_path = {kind.schema}".encode())
        self.look.execute(statements.encode())

    @property
    def _found(self) -> RegisteredFollower:
        [found] = registry.find(self._stage.log, self.name)
        return found

    def outcomes(self) -> dict[str, AtFollower]:
        """What has become of each kind, by schema, in its own words."""
        stopped = self._has_ended
        said = (
            {}
            if stopped
            else {
                each.table: each.state for each in verify.verify(self._stage.config, self._stage.log, self.name).tables
            }
        )
        found = {}
        for kind in self.kinds:
            differs = {} if stopped else self._differing(kind, said)
            found[kind.schema] = replace(kind.follower, differs=differs, stops=tuple(self._stops[kind.schema]))
        return found

    def _differing(self, kind: Kind, said: Mapping[str, str]) -> dict[str, str | None]:
        """Tables that are not as at the source, with what `verify` has `said`; it must say that others are equal."""
        here, there = self._tables(self._stage.source, kind), self._tables(self.look, kind)
        found: dict[str, str | None] = {}
        rows = 0
        for table in sorted(here.keys() | there.keys()):
            verified = said.get(f"{kind.schema}.{table}")
            if (there_has := there.get(table)) is None or here.get(table) != there_has:
                found[table] = verified if table in there else None
                rows += len(there_has[1]) if there_has else 0
            else:
                rows += len(there_has[1])
                if verified != "equal":
                    found[table] = f"{verified}, and it is equal"
        if not rows and kind.follower.says != NOTHING:
            found["all"] = "no row to compare"
        return found

    @staticmethod
    def _tables(connection: psycopg.Connection, kind: Kind) -> dict[str, tuple[str, list[str]]]:
        """By name, with their columns and rows; of foreign tables no rows."""
        connection.execute("set search_path = ''")
        found = {}
        for name, relkind, columns in connection.execute(_TABLES, [kind.schema]).fetchall():
            table = sql.Identifier(kind.schema, name)
            names = [sql.Identifier("t", each) for (each,) in connection.execute(_COLUMNS, [table.as_string(None)])]
            rows = list[str]()
            for relation in [table.as_string(None)] if relkind == "r" else _leaves(connection, table):
                query = sql.SQL("select row({})::text from only {} t").format(
                    sql.SQL(", ").join(names),
                    sql.SQL(relation),  # as the catalog prints it
                )
                rows += [text for (text,) in connection.execute(query).fetchall()]
            found[name] = columns, sorted(rows)
        return found


def _leaves(connection: psycopg.Connection, table: sql.Identifier) -> list[str]:
    """Partitions that have rows, but for foreign ones."""
    query = """
        select t.relid::regclass::text from pg_partition_tree(%s) t join pg_class c on c.oid = t.relid
        where t.isleaf and c.relkind = 'r'
    """
    return [name for (name,) in connection.execute(query, [table.as_string(None)]).fetchall()]


NOTHING = "nothing"
"""What is said of a kind of which a follower has no row."""


@contextmanager
def followed(stage: Stage, cluster: Cluster, kinds: Sequence[Kind]) -> Iterator[list[FollowerOfKinds]]:
    """Followers of these kinds that have begun: one of all, and one of each that stops for good."""
    last = [kind for kind in kinds if any(stop.is_last for stop in kind.follower.stops)]
    groups = [[kind for kind in kinds if kind not in last], *([kind] for kind in last)]
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setattr(following, "IDLE_SECONDS", 0.1)
        patch.setattr(following, "REPORT_SECONDS", 0.05)
        for module, name in ((following, "FIRST_DELAY"), (following, "LONGEST_DELAY"), (copier, "REST_SECONDS")):
            patch.setattr(module, name, 0.05)
        made = []
        for group in filter(None, groups):
            dsn = stack.enter_context(cluster.database("follower"))
            made.append(FollowerOfKinds(stage, dsn, group))
            stack.callback(registry.remove, stage.log, made[-1].name)
            stack.enter_context(made[-1].look)
            stack.enter_context(made[-1].running)
        head = stage.arrive()
        for each in made:
            each.settle(head)
        yield made
