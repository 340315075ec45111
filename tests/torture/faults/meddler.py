"""A superuser who means no harm: locks, maintenance, additions, and copies of the pipeline database.

What would stop the server is taken back after a while, whatever hits the databases meanwhile.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping

import psycopg
from psycopg import sql

from tests.fixtures.postgres import unique
from tests.torture.plan.workload import FaultKind
from tests.torture.rig import Scene

_INSIST = 120.0
"""Seconds in which what stops the server must have been taken back."""
_PATIENCE = "set lock_timeout = '2s'"
"""Who waits for a lock keeps others waiting behind it."""
_LOCKED = (
    "public.sequin_events",
    "public.wal_events",
    "pipeline.shuffle_progress",
    "pipeline.replication_progress",
    "pipeline.relations",
    "pipeline.sources",
)
_MODES = ("access exclusive", "share row exclusive", "exclusive", "share")
_MAINTAINED = (
    "analyze",
    "vacuum (full, analyze)",
    "vacuum (freeze) public.sequin_events",
    "vacuum full public.sequin_events",
    "vacuum full pipeline.relations",
    "reindex schema pipeline",
    "reindex table public.sequin_events",
    "reindex table concurrently pipeline.relations",
    "checkpoint",
)
_MAINTAINED_SOURCE = (
    "analyze",
    "vacuum (freeze)",
    "reindex table concurrently public.items",
    "select pg_switch_wal()",
    "checkpoint",
)
"""What takes locks that writers do not wait for: those of a plan wait for none."""
_LOSING = (
    (
        "create trigger {name} before insert on public.sequin_events for each row execute function public.lose()",
        "drop trigger if exists {name} on public.sequin_events",
    ),
    (
        "create rule {name} as on insert to public.sequin_events do instead nothing",
        "drop rule if exists {name} on public.sequin_events",
    ),
    (
        "create trigger {name} before insert on public.sequin_events for each row execute function public.refuse()",
        "drop trigger if exists {name} on public.sequin_events",
    ),
)
_FUNCTIONS = """
    create or replace function public.lose() returns trigger language plpgsql as $$ begin return null; end $$;
    create or replace function public.refuse() returns trigger language plpgsql
        as $$ begin raise exception 'not today'; end $$;
"""
KINDS: Mapping[str, FaultKind] = {
    "meddle lock": FaultKind((0.2, 2.0), meddling=True, often=2),
    "meddle maintenance": FaultKind(meddling=True, often=2),
    "meddle maintenance at the source": FaultKind(meddling=True),
    "meddle column": FaultKind((0.0, 1.0), meddling=True, lasting=True),
    "meddle index": FaultKind(meddling=True, lasting=True),
    "meddle publication": FaultKind(meddling=True, lasting=True),
    "meddle trigger": FaultKind((0.3, 2.0), meddling=True, often=2),
    "meddle sequence lower": FaultKind(meddling=True, often=2),
    "meddle sequence higher": FaultKind(meddling=True),
    "meddle copy": FaultKind(meddling=True, often=2),
}


class Meddler:
    """`act` does what a kind is called by; `hit` is called once it is done, or has begun."""

    def __init__(self, scene: Scene, seed: int) -> None:
        self._scene = scene
        self._chance = random.Random(f"meddler {seed}")
        self._copying = threading.Lock()

    def act(self, kind: str, seconds: float, hit: Callable[[], None]) -> None:
        """Returns when it is over, and taken back."""
        _ACTS[kind](self, seconds, hit)

    def _lock(self, seconds: float, hit: Callable[[], None]) -> None:
        tables = ", ".join(self._chance.sample(_LOCKED, self._chance.randint(1, 3)))
        try:
            with psycopg.connect(self._scene.log_dsn) as connection:
                connection.execute(_PATIENCE)
                connection.execute(f"lock table {tables} in {self._chance.choice(_MODES)} mode".encode())
                hit()
                time.sleep(seconds)
        except psycopg.OperationalError:
            return  # a crash, or its turn did not come

    def _maintain(self, seconds: float, hit: Callable[[], None]) -> None:
        self._try(self._scene.log_dsn, self._chance.choice(_MAINTAINED), hit)

    def _maintain_source(self, seconds: float, hit: Callable[[], None]) -> None:
        self._try(self._scene.source_dsn, self._chance.choice(_MAINTAINED_SOURCE), hit)

    def _add_column(self, seconds: float, hit: Callable[[], None]) -> None:
        """Somebody's own, with a default; sometimes it goes again."""
        name = unique("added")
        self._try(self._scene.log_dsn, f"alter table public.sequin_events add column {name} text default 'x'", hit)
        time.sleep(seconds)
        if self._chance.random() < 0.5:
            self._try(self._scene.log_dsn, f"alter table public.sequin_events drop column if exists {name}", hit)

    def _add_index(self, seconds: float, hit: Callable[[], None]) -> None:
        on = self._chance.choice(("public.sequin_events (record_pk)", "public.sequin_events (committed_at, action)"))
        self._try(self._scene.log_dsn, f"create index {unique('index')} on {on}", hit)

    def _publish(self, seconds: float, hit: Callable[[], None]) -> None:
        dsn, what = self._chance.choice(
            ((self._scene.log_dsn, ""), (self._scene.source_dsn, " with (publish = 'insert')"))
        )
        self._try(dsn, f"create publication {unique('theirs')} for all tables{what}", hit)

    def _lose_rows(self, seconds: float, hit: Callable[[], None]) -> None:
        """Events go nowhere for a while: the server has to wait, and to lose none."""
        made, gone = self._chance.choice(_LOSING)
        name = unique("meddles")
        self._try(self._scene.log_dsn, f"{_FUNCTIONS}; {made.format(name=name)}", hit)
        time.sleep(seconds)
        self._insist(self._scene.log_dsn, gone.format(name=name))

    def _set_sequence(self, seconds: float, hit: Callable[[], None], *, higher: bool) -> None:
        moved = "last_value + 1000" if higher else "greatest(1, last_value - 40)"
        self._try(
            self._scene.log_dsn,
            f"select setval('public.sequin_events_seq_seq', {moved}) from public.sequin_events_seq_seq",
            hit,
        )

    def _copy(self, seconds: float, hit: Callable[[], None]) -> None:
        """The pipeline database is copied, and the copy takes its place."""
        name, copy = sql.Identifier(self._scene.log_name), sql.Identifier(unique("copy"))
        cluster = self._scene.rig.log.server.dsn("postgres")
        ended = sql.SQL("select pg_terminate_backend(pid) from pg_stat_activity where datname = {}").format(
            sql.Literal(self._scene.log_name)
        )
        closed = sql.SQL("alter database {} with allow_connections false").format(name)
        copied = sql.SQL("create database {} template {}").format(copy, name)
        steps = (
            sql.SQL("drop database if exists {}").format(name),
            sql.SQL("alter database {} rename to {}").format(copy, name),
            sql.SQL("alter database {} with allow_connections true").format(name),
        )
        with self._copying:
            if self._until(cluster, closed) and self._until(cluster, ended, copied):
                hit()
                for step in steps:
                    self._insist(cluster, step)
            else:
                self._insist(cluster, steps[-1])

    def _until(self, dsn: str, *statements: sql.Composed) -> bool:
        """Whether they succeed within a while."""
        for _ in range(20):
            try:
                with psycopg.connect(dsn, autocommit=True) as connection:
                    for statement in statements:
                        connection.execute(statement)
                return True
            except psycopg.Error:
                time.sleep(0.2)
        return False

    def _try(self, dsn: str, statement: str, hit: Callable[[], None]) -> None:
        """Once. It may wait for a lock without success, meet a crash, or be chosen as a deadlock's victim."""
        try:
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute(_PATIENCE)
                connection.execute(statement.encode())
            hit()
        except psycopg.OperationalError:
            return

    def _insist(self, dsn: str, statement: str | sql.Composed) -> None:
        """Until it is done."""
        until = time.monotonic() + _INSIST
        while True:
            try:
                with psycopg.connect(dsn, autocommit=True) as connection:
                    connection.execute(_PATIENCE)
                    connection.execute(statement.encode() if isinstance(statement, str) else statement)
                    return
            except psycopg.errors.InvalidCatalogName:  # done at a try whose answer was lost
                return
            except psycopg.Error:
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)


_ACTS: Mapping[str, Callable[[Meddler, float, Callable[[], None]], None]] = {
    "meddle lock": Meddler._lock,
    "meddle maintenance": Meddler._maintain,
    "meddle maintenance at the source": Meddler._maintain_source,
    "meddle column": Meddler._add_column,
    "meddle index": Meddler._add_index,
    "meddle publication": Meddler._publish,
    "meddle trigger": Meddler._lose_rows,
    "meddle sequence lower": lambda meddler, *of: meddler._set_sequence(*of, higher=False),
    "meddle sequence higher": lambda meddler, *of: meddler._set_sequence(*of, higher=True),
    "meddle copy": Meddler._copy,
}
