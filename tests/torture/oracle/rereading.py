"""A gap after everything else: what was lost in it is found by comparing all tables with the log, and nothing else."""

from __future__ import annotations

import random
import time
from contextlib import suppress

import psycopg
from psycopg import sql

from tests.fixtures.server import run_command
from tests.fixtures.waiting import eventually
from tests.torture.faults.servers import Servers
from tests.torture.oracle.contents import Verifier
from tests.torture.rig import Scene

WITHIN = 300.0
"""Seconds in which all tables are compared."""
EDITS = 60
"""This many while tables are compared: a row that is written without a rest is read again and again."""
_EDITS = (
    "update public.items set note = 'lost' where id % {0} = 0",
    "update public.items set id = id + 5000000 where id % {0} = 1",
    "update public.whole set big = repeat('g', 6000) where id % {0} = 2",
    "update public.whole set note = 'lost' where id % {0} = 3",
    "delete from public.lines where no % {0} = 1",
    "insert into public.whole select 7000000 + g, 'new', 'small' from generate_series(1, {0}) g on conflict do nothing",
    "delete from public.whole where id % {0} = 4",
)
_TABLES = """
    select n.nspname, c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where c.relkind in ('r', 'p') and not c.relispartition and n.nspname !~ '^(pg_|information_schema$|private$)'"""
_LEFT = """
    select (select count(*) from pipeline.backfills where state in ('waiting', 'reading', 'paused'))
        + (select count(*) from pipeline.snapshot_tables t where t.captured
            and (t.reread is not null or t.epoch < (select max(epoch) from pipeline.epochs)))"""


def fault(scene: Scene, servers: Servers, seed: int, verifier: Verifier) -> str | None:
    """Lose changes, begin an epoch that rereads, and compare; what is wrong then, None when nothing is."""
    choose = random.Random(seed)
    for server in scene.servers:
        server.close()
    with scene.source() as source, scene.log() as log:
        eventually(lambda: _drop_slot(source, scene.slot), WITHIN, (psycopg.Error,))
        _lose(source, choose)
        adopted = run_command("sources", "adopt", "--reread", "--yes", folder=scene.folder, **servers.settings)
        if adopted.returncode:
            return f"adopt --reread ended with {adopted.returncode}: {adopted.stderr}"
        servers.current = servers.start()
        edits = iter(range(EDITS))

        def compared() -> None:
            servers.tend()
            if next(edits, None) is not None:
                _edit(source, choose)
                time.sleep(0.1)
            left = log.execute(_LEFT).fetchone()
            assert left == (0,), f"{left} backfills are left: {log.execute(_OPEN).fetchall()}"

        eventually(compared, WITHIN, (AssertionError, psycopg.Error))
    verifier.at_rest(servers.tend)
    return verifier.fault


_OPEN = "select table_name, kind, state, reason from pipeline.backfills where state <> 'complete'"


def _drop_slot(source: psycopg.Connection, slot: str) -> None:
    source.execute("select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = %s", [slot])
    source.execute("select pg_drop_replication_slot(%s)", [slot])


def _lose(source: psycopg.Connection, choose: random.Random) -> None:
    """Rows of every table, and everything about some."""
    for schema, table in source.execute(_TABLES).fetchall():
        query = sql.SQL("delete from {0} where ctid in (select ctid from {0} order by random() limit {1})")
        with suppress(psycopg.Error), source.transaction():  # a key that others refer to, a trigger of a deed
            source.execute(query.format(sql.Identifier(schema, table), choose.randrange(4)))
    for _ in range(6):
        _edit(source, choose)


def _edit(source: psycopg.Connection, choose: random.Random) -> None:
    with suppress(psycopg.errors.UniqueViolation, psycopg.errors.LockNotAvailable):
        source.execute(choose.choice(_EDITS).format(choose.choice((5, 7, 11))).encode())
