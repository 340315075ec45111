"""A newer server migrates beneath an older one that still works: each revision only adds, or waits for its end."""

from __future__ import annotations

import io
import logging
import re
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from pipeline.postgres import connections, migrations, role_locks
from tests.fixtures.postgres import Cluster
from tests.fixtures.server import ROOT, Serving
from tests.fixtures.waiting import eventually
from tests.migration.test_migrations import REFERENCE

BEFORE = "125a289"
"""The version before, which this one must get along with."""
STRICT = """
revision = "0900"
down_revision = "{before}"
additive = False


def upgrade() -> None:
    from alembic import op

    op.execute("alter table pipeline.roles add column strict boolean")


def downgrade() -> None:
    pass
"""
SCHEMA = """
    select format('column %s.%s %s %s', attrelid::regclass, attname, format_type(atttypid, atttypmod), attcollation)
    from pg_attribute join pg_class c on c.oid = attrelid
    where relkind in ('r', 'p', 'v') and attnum > 0 and not attisdropped and {ours}
    union all
    select format('column %s.%s may be null', attrelid::regclass, attname)
    from pg_attribute join pg_class c on c.oid = attrelid
    where relkind in ('r', 'p') and attnum > 0 and not attisdropped and not attnotnull and {ours}
    union all
    select format('default of %s.%s %s', adrelid::regclass, attname, pg_get_expr(adbin, adrelid))
    from pg_attrdef join pg_attribute on attrelid = adrelid and attnum = adnum join pg_class c on c.oid = adrelid
    where {ours}
    union all
    select format('index %s', pg_get_indexdef(indexrelid))
    from pg_index join pg_class c on c.oid = indrelid where {ours}
    union all
    select format('function %s(%s) %s', proname, pg_get_function_arguments(c.oid), pg_get_function_result(c.oid))
    from pg_proc c join (select oid, pronamespace as relnamespace from pg_proc) f using (oid) where {ours}
""".replace("{ours}", "relnamespace in ('public'::regnamespace, 'pipeline'::regnamespace)")
DEMANDS = """
    select format('%s on %s: %s', conname, conrelid::regclass, pg_get_constraintdef(k.oid))
    from pg_constraint k join pg_class c on c.oid = conrelid
    where contype <> 'n' -- which are looked at below, since a default meets them
        and relnamespace in ('public'::regnamespace, 'pipeline'::regnamespace)
    union all
    select format('%s.%s is not null', attrelid::regclass, attname)
    from pg_attribute join pg_class c on c.oid = attrelid
    where relkind in ('r', 'p') and attnum > 0 and not attisdropped and attnotnull and not atthasdef
        and attidentity = '' and relnamespace in ('public'::regnamespace, 'pipeline'::regnamespace)
    union all
    select format('trigger %s on %s', tgname, tgrelid::regclass) from pg_trigger where not tgisinternal
"""


def lines(connection: psycopg.Connection[Any], query: str) -> set[str]:
    connection.execute("set search_path = ''")
    return {row[0] for row in connection.execute(query.encode())}


@pytest.fixture
def of_before(cluster: Cluster) -> Iterator[str]:
    """The DSN of a pipeline database of the version before."""
    with cluster.database("before") as dsn:
        with psycopg.connect(dsn) as restored:
            restored.execute(REFERENCE.encode())
            restored.execute("insert into pipeline.alembic_version values ('0013')")
        yield dsn


def test_migrations_only_add(of_before: str):
    """Nothing that the version before uses is gone or different, and what it writes meets no new demand."""
    with psycopg.connect(of_before) as connection:
        had, demanded = lines(connection, SCHEMA), lines(connection, DEMANDS)
        tables = {line.split()[1].rsplit(".", 1)[0] for line in had if line.startswith("column ")}
    migrations.upgrade(of_before)
    with psycopg.connect(of_before) as connection:
        assert had - lines(connection, SCHEMA) == set()
        new = {line for line in lines(connection, DEMANDS) - demanded if not is_wider(line, demanded)}
        assert {
            line for line in new for table in tables if f" {table}:" in line or line.startswith(f"{table}.")
        } == set()


def is_wider(line: str, demanded: set[str]) -> bool:
    """Whether it is a check of before that lets more values pass."""
    form, values = re.sub(r"ARRAY\[.*\]", "ARRAY", line), set(re.findall(r"'\w+'", line))
    return any(
        re.sub(r"ARRAY\[.*\]", "ARRAY", old) == form and set(re.findall(r"'\w+'", old)) < values for old in demanded
    )


@pytest.fixture
def strict(database_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A migrated database, for which there is a new revision now that a working server could not bear."""
    shutil.copytree(ROOT / "alembic", tmp_path / "alembic")
    (tmp_path / "alembic" / "versions" / "0900_strict.py").write_text(STRICT.format(before=migrations.head()))
    monkeypatch.setattr(migrations, "_location", lambda: tmp_path / "alembic")
    return database_dsn


@pytest.mark.parametrize("change", [lambda dsn: migrations.upgrade(dsn), lambda dsn: migrations.downgrade(dsn, "0015")])
def test_what_is_not_additive_waits_for_the_end_of_the_server(
    change: Callable[[str], None], strict: str, caplog: pytest.LogCaptureFixture
):
    before = migrations.current(strict)
    with connections.connect(strict, "pipeline database") as holder:
        assert role_locks.try_acquire(holder, "shuffle")
        role_locks.report(holder, "shuffle", "somewhere:1", 1, "running")
        with caplog.at_level(logging.WARNING), role_locks.keep_alive(holder, lambda _: None):
            migration = threading.Thread(target=change, args=[strict])
            migration.start()
            eventually(lambda: "waiting for the end of somewhere:1 (shuffle)" in caplog.text)
            assert migrations.current(strict) == before
    migration.join()
    assert migrations.current(strict) != before
    with connections.connect(strict, "pipeline database") as next_server:  # nothing is held any more
        assert all(role_locks.try_acquire(next_server, role) for role in role_locks.WORKING)


@pytest.fixture
def code_before(tmp_path: Path) -> Path:
    """The folder of the version before, from the history of this repository."""
    asked = ["git", "-C", str(ROOT), "archive", BEFORE]
    packed = subprocess.run(asked, capture_output=True, check=False)
    if packed.returncode:
        pytest.skip(f"no {BEFORE} in this checkout: {packed.stderr.decode()}")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(tmp_path / "before", filter="data")
    return tmp_path / "before"


class Log:
    """Rows and messages written to a source, and whether the log has each once and in order."""

    def __init__(self, source: psycopg.Connection[Any], database_dsn: str) -> None:
        self.database_dsn = database_dsn
        self._source = source
        self._source.execute("create table t (id int primary key); create table old (id int primary key)")
        self._source.execute("insert into old select generate_series(1, 100)")  # from before the first server
        self._written: list[tuple[str, str]] = []

    def goes_on(self) -> None:
        number = len(self._written)
        self._source.execute("insert into t values (%s)", [number])
        self._source.execute("select pg_logical_emit_message(true, %s, '')", [f"note {number}"])
        self._written += [("t", str(number)), (f"note {number}", "")]
        eventually(lambda: self._events() == self._written, timeout=60)

    def _events(self) -> list[tuple[str, str]]:
        with psycopg.connect(self.database_dsn) as connection:
            query = "select source_table_name, record_pk from sequin_events order by seq"
            return connection.execute(query).fetchall()

    def reads_nothing(self) -> None:
        """A newer server leads, and has looked at the tables of the version before: their rows are not read."""
        query = """select "table" from pipeline.snapshots where state = 'not read' and reason ~ 'captured before'
            order by 1"""
        with psycopg.connect(self.database_dsn, autocommit=True) as connection:
            eventually(lambda: connection.execute(query).fetchall() == [("public.old",), ("public.t",)])
        self.goes_on()

    def leader(self) -> int:
        """The pid of the server that leads, or led last."""
        with psycopg.connect(self.database_dsn) as connection:
            row = connection.execute("select split_part(server, ':', 2) from pipeline.roles where role = 'serve'")
            return int(row.fetchall()[0][0])

    def receive(self) -> int:
        """How many items a client gets and settles."""
        with psycopg.connect(self.database_dsn, autocommit=True) as connection:
            rows = connection.execute("select ack_id from pipeline.receive('c', 100)").fetchall()
            connection.execute("select pipeline.ack('c', %s)", [[ack_id for (ack_id,) in rows]])
            return len(rows)


def require_answers(server: Serving) -> None:
    def answers() -> None:
        found = {path: server.get(path).status_code for path in ("/v1/events", "/v1/consumers", "/metrics")}
        assert set(found.values()) == {200}, found

    eventually(answers, errors=(httpx.TransportError, AssertionError))


def test_servers_of_both_versions_take_over_from_each_other(
    source_dsn: str, cluster: Cluster, code_before: Path, serve: Callable[..., Serving]
):
    with cluster.database("events") as database_dsn, psycopg.connect(source_dsn, autocommit=True) as source:
        log = Log(source, database_dsn)
        first = serve(code=code_before, database_dsn=database_dsn)
        standby = serve(code=code_before, database_dsn=database_dsn, wait=False)
        eventually(lambda: "standing by" in standby.log(), timeout=60)  # the newer one migrates what it has to know
        log.goes_on()
        with psycopg.connect(database_dsn) as client:
            client.execute("select pipeline.create_consumer('c', start => 'beginning')")
        newer = serve(database_dsn=database_dsn, wait=False)
        eventually(lambda: all("standing by" in each.log() for each in (standby, newer)), timeout=60)
        assert migrations.current(database_dsn) == migrations.head()
        assert log.leader() == first.process.pid
        log.goes_on()
        eventually(lambda: log.receive() > 0)
        require_answers(first)
        require_answers(newer)
        first.close()
        log.goes_on()
        next_one, last = (newer, standby) if log.leader() == newer.process.pid else (standby, newer)
        if next_one is newer:
            log.reads_nothing()
        next_one.close()
        log.goes_on()
        assert log.leader() == last.process.pid
        if last is newer:
            log.reads_nothing()
        eventually(lambda: log.receive() > 0)


@pytest.mark.long
def test_an_older_server_does_not_pass_a_backlog_that_waits(
    source_dsn: str, cluster: Cluster, code_before: Path, serve: Callable[..., Serving]
):
    """It stood by while a newer one led, which was killed, and has left tables that become partitions."""
    waiting = """
        insert into pipeline.adopted_tables (source_id, run, generation, events_table, table_name, attaches, ends,
            first_seq, last_seq, first_lsn, last_lsn, relations)
        select source_id, 1, 1, 'public.sequin_events', 'gone', true, true, 1, 1, commit_lsn + 1, commit_lsn + 1, '{}'
        from pipeline.shuffle_progress"""
    with cluster.database("events") as database_dsn, psycopg.connect(source_dsn, autocommit=True) as source:
        log = Log(source, database_dsn)
        server = serve(code=code_before, database_dsn=database_dsn)
        migrations.upgrade(database_dsn)
        log.goes_on()
        with psycopg.connect(database_dsn, autocommit=True) as database:
            before = database.execute("select max(seq) from sequin_events").fetchone()
            database.execute(waiting)
            source.execute("insert into t values (1000)")
            eventually(lambda: "a backlog come next in the log" in server.log(), timeout=60)
            assert database.execute("select max(seq) from sequin_events").fetchone() == before
            database.execute("delete from pipeline.adopted_tables")
        log._written.append(("t", "1000"))
        log.goes_on()


def test_a_worker_waits_for_the_end_of_an_older_shuffler(
    source_dsn: str, database_dsn: str, serve: Callable[..., Serving]
):
    """It would write wrong names of messages; only the shuffler waits for one of the same version."""
    with psycopg.connect(source_dsn, autocommit=True) as source:
        log = Log(source, database_dsn)
        server = _beside_an_older_shuffler(database_dsn, serve)
        server.wait_ready()
        log.goes_on()


def _beside_an_older_shuffler(database_dsn: str, serve: Callable[..., Serving]) -> Serving:
    with psycopg.connect(database_dsn, autocommit=True) as older:
        older.execute("insert into pipeline.roles values ('shuffle', 'somewhere:1', 1, 'running')")
        older.execute("select pg_advisory_lock(1346981968, hashtext('pipeline:shuffle'))")
        with role_locks.keep_alive(older, lambda _: None):  # or a server that is slow to start finds it frozen
            server = serve(wait=False, snapshot="never")  # the log is to have what is written, and nothing else
            eventually(lambda: "the shuffler of somewhere:1 is of an older version" in server.log())
            asked = partial(eventually, errors=(httpx.TransportError, AssertionError))
            asked(lambda: "older version" in server.get("/readyz").text)
        assert "replication.streaming" not in server.log()
    return server
