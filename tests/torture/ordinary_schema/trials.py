"""A follower of a schema as Rails, Django and Prisma write it, which migrates while it is written and while pg_repack,
gh-ost-like tools and dbt work on it: `python -m tests.torture.ordinary_schema --minutes 20`.

At each pause all tables are compared by content, once `pipeline followers wait` says that the follower has all. Where
it stops instead, the statement that it names is run there.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psycopg
from psycopg import sql

from pipeline.config import settings
from pipeline.config.settings import Config
from pipeline.errors import PipelineError
from pipeline.followers.operating import adding, status, waiting
from pipeline.followers.registry import FollowerOptions
from pipeline.postgres import connections, session_settings
from tests.fixtures.postgres import Cluster, temporary_server, unique
from tests.fixtures.server import serving
from tests.fixtures.waiting import eventually
from tests.torture.ordinary_schema.helping import Helper
from tests.torture.ordinary_schema.jobs import TABLES, Job
from tests.torture.ordinary_schema.source import Source
from tests.torture.ordinary_schema.writer import Writer
from tests.torture.outcome import Outcome

NAME = "reports"
STEPS, END_SECONDS, WAIT_SECONDS = 400, 120.0, 5.0
"""Of the writer between two pauses; how long a follower may need at one; how long each `wait` of that is."""
_MADE_BY_HAND = "create or replace function app.fold(text) returns text language sql immutable as 'select lower($1)'"
"""A function that another one finds by search_path: no dependency tells of it."""


_KNOWN = """
    select format('version %%s of %%s from %%s %%s on: %%s', r.id, r.table_name, r.from_lsn, r.from_idx, (
        select jsonb_object_agg(c ->> 'name', c -> 'attnum') from jsonb_array_elements(r.columns) c))
    from pipeline.relations r where r.table_name = any(%s)
    union all
    select to_jsonb(w)::text from pipeline.rewrites w
"""


_SCHEMAS = """
    select distinct on (r.relation_oid) r.relation_oid, r.relation_schema from pipeline.relations r
    order by r.relation_oid, r.id desc
"""
_REACHED = """
    select to_jsonb(p)::text from pipeline_follower.position p
    union all select to_jsonb(f)::text from pipeline_follower.forms f
    union all select (to_jsonb(c) - 'form')::text from pipeline_follower.copies c
"""


class Round:
    """One seed, with its own databases."""

    def __init__(self, ours: Cluster, theirs: Cluster, seed: int, folder: Path, stack: ExitStack) -> None:
        self.outcome = Outcome(seed)
        source = stack.enter_context(ours.database("source"))
        log = stack.enter_context(ours.database("events", ours.template))
        self._dsn = stack.enter_context(theirs.database("follower"))
        slot = unique("slot")
        self._config: Config = settings.load(source_dsn=source, database_dsn=log, slot=slot)
        make_schema(source)
        self._source = Source(source, seed)
        stack.callback(self._source.connection.close)
        self._writer = Writer(self._source, {"pause": self._pause, "kill": self._kill})
        stack.callback(self._writer.close)
        self._helper = Helper(self._source, self._dsn)
        self._server = stack.enter_context(serving(folder, source, log, slot))()

    def play(self, seconds: float) -> Outcome:
        """Run for this long, or until the follower is not equal at a pause."""
        self._write()
        eventually(self._add, 60, (PipelineError, psycopg.Error))
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.outcome.wrong:
            self._write()
            self._compare_all()
        counts = self.outcome.counts
        counts.update(self._writer.counts)
        counts.update({f"stop: {kind}": count for kind, count in self._helper.stops.items()})
        return self.outcome

    def _write(self) -> None:
        for _ in range(STEPS):
            self._writer.step()
            time.sleep(self._source.chance.choice((0, 0, 0, 0.01, 0.05)))

    def report(self) -> str:
        """What did not take part, and what stops said."""
        refused = [f"  refused: {count} {what}" for what, count in self._writer.refused.most_common(40)]
        examples = [f"  {kind}: {said[:600]}" for kind, said in self._helper.examples.items()]
        return "\n".join([*refused, "stops:", *examples, *self._said_of_wrong()])

    def _said_of_wrong(self) -> list[str]:
        """What was done to tables that are named in what is wrong, and what the log knows of them."""
        said = " ".join(self.outcome.wrong).partition("; [")[0].replace('"', "")
        named = {each for each in self._source.tables() if each.name.replace('"', "") in said}
        words = [word for each in named for word in (each.short, f"schema {each.schema}")]
        found = [f"  {text[:600]}" for text in self._writer.newest if any(word in text for word in words)]
        with self._sessions() as (_, log):
            known = log.execute(_KNOWN, [[each.short for each in named]]).fetchall()
        with psycopg.connect(self._dsn) as there:
            known += there.execute(_REACHED).fetchall()
        return [*found[-200:], *(f"  {text}" for (text,) in known)]

    def _pause(self, source: Source) -> Job:
        """The follower, for a while."""
        with self._sessions() as (_, log):
            status.pause(log, NAME)
        for _ in range(source.chance.randrange(150)):
            yield ""
        self._resume()

    def _kill(self, _: Source) -> Job:
        """The follower's applier."""
        with suppress(ProcessLookupError):
            if pid := self._server.children().get(f"follower {NAME}"):
                os.kill(pid, signal.SIGKILL)
        yield ""

    def _resume(self) -> None:
        with self._sessions() as (_, log):
            status.resume(log, NAME)

    def _add(self) -> None:
        with self._sessions() as (source, log):
            given = (self._config, source, log, NAME, self._dsn, FollowerOptions())
            with psycopg.connect(self._dsn, autocommit=True) as there:
                for statement in adding.missing_sql(*given):
                    there.execute(statement.encode())
                there.execute(_MADE_BY_HAND)
            adding.add(*given)

    @contextmanager
    def _sessions(self) -> Iterator[tuple[connections.Connection, connections.Connection]]:
        with (
            connections.connect(self._config.source, "source", settings=session_settings.SERVER) as source,
            connections.connect(self._config.database, "pipeline database") as log,
        ):
            yield source, log

    def _compare_all(self) -> None:
        for kind in ("pause", "pg_repack"):
            self._writer.end(kind)
        self._writer.touch()
        with suppress(AssertionError):  # of a table that takes no row
            eventually(self._require_known, WAIT_SECONDS)
        self._writer.touch()  # no event tells names of schemas: those that come after the look at the catalog do
        began = time.monotonic()
        try:
            eventually(self._require_equal, END_SECONDS, (AssertionError, PipelineError, psycopg.Error))
        except (AssertionError, PipelineError, psycopg.Error) as error:
            self.outcome.wrong.append(f"{type(error).__name__}: {error}; {self._states()}"[:3_000])
        self.outcome.counts["comparisons"] += 1
        counts = self.outcome.counts
        counts["most seconds until equal"] = max(counts["most seconds until equal"], round(time.monotonic() - began))

    def _require_known(self) -> None:
        """The log has the schemas in which the tables are now."""
        with self._sessions() as (_, log):
            known = dict(log.execute(_SCHEMAS).fetchall())
        there = {each.oid: each.schema for each in self._source.tables()}
        assert {oid: schema for oid, schema in there.items() if known.get(oid, schema) != schema} == {}

    def _require_equal(self) -> None:
        with self._sessions() as (source, log):
            waited = waiting.wait(self._config, source, log, [NAME], WAIT_SECONDS)
            if not waited.ok:
                self._helper.help(status.show(log, NAME), log)
        assert waited.ok, waited.reason
        with psycopg.connect(self._dsn) as there:
            found = differences(self._source, there)
        self.outcome.counts["waited for more than `wait`"] += bool(found)
        assert not found, "; ".join(found)

    def _states(self) -> str:
        with self._sessions() as (_, log):
            found = status.show(log, NAME)
        tables = [(each.table, each.state, each.reason, each.remedy) for each in found.not_followed]
        return f"{found.state}: {found.reason}; {found.remedy}; {tables}"


def make_schema(dsn: str) -> None:
    """The tables, in an empty database."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        name = sql.Identifier(connection.info.dbname)
        connection.execute(sql.SQL("alter database {} set search_path = public, app").format(name))
        has = connection.execute("select name from pg_available_extensions").fetchall()
        connection.execute("create extension citext" if ("citext",) in has else "create domain citext as text")
        if ("pg_repack",) in has:
            connection.execute("create extension pg_repack")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(TABLES.encode())


def differences(source: Source, there: psycopg.Connection) -> list[str]:
    """Tables whose columns or rows are others at the follower."""
    found = []
    for table in source.tables():
        query = sql.SQL("select to_jsonb(x)::text from {} x").format(sql.Identifier(table.schema, table.short))
        ours = Counter(text for (text,) in source.connection.execute(query))
        try:
            with there.transaction():
                theirs = Counter(text for (text,) in there.execute(query))
        except psycopg.errors.UndefinedTable:
            if ours:  # it is made before its first row
                found.append(f"{table.name} is not there")
            continue
        if ours != theirs:
            lacking, more = list((ours - theirs).elements()), list((theirs - ours).elements())
            found.append(f"{table.name} lacks {len(lacking)} rows {lacking[:2]}, has {len(more)} more {more[:2]}")
    return found


def play(major: int, theirs: int, seed: int, seconds: float) -> tuple[Outcome, str]:
    """One seed, and what it has to report. Source and pipeline database are on one server, the follower on another."""
    with temporary_server(major) as one, temporary_server(theirs) as other, ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        played = Round(one, other, seed, folder, stack)
        return played.play(seconds), played.report()


def main() -> int:
    """One seed for some minutes, until something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pg", type=int, default=18, help="major version of source and pipeline database")
    parser.add_argument("--followers-pg", type=int, default=18, help="major version of the follower")
    given = parser.parse_args()
    outcome, report = play(given.pg, given.followers_pg, given.seed, 60 * given.minutes)
    print(report, outcome, sep="\n", flush=True)
    return 1 if outcome.wrong else 0
