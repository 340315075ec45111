"""The pipeline database is replaced by a restored dump beneath a running server."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.fixtures.postgres import Cluster, bin_dir, unique
from tests.fixtures.server import STOP_TIMEOUT, Serving
from tests.fixtures.waiting import eventually

IDS = "select array_agg((record ->> 'id')::int order by seq) from sequin_events"


def test_a_server_stops_with_the_remedy_if_its_log_is_restored_beneath_it(
    source_dsn: str, database_dsn: str, cluster: Cluster, serve: Callable[..., Serving], tmp_path: Path
) -> None:
    dump, binaries, restored = tmp_path / "dump", bin_dir(18) or Path(), unique("restored")
    with (
        psycopg.connect(source_dsn, autocommit=True) as source,
        psycopg.connect(database_dsn, autocommit=True) as log,
        cluster.connect() as administrator,
    ):
        source.execute("create table t (id int primary key)")
        server = serve(snapshot="never")
        source.execute("insert into t values (1)")
        eventually(lambda: log.execute(IDS).fetchone() == ([1],))
        subprocess.run([binaries / "pg_dump", "-Fc", "-f", dump, "-d", database_dsn], check=True)
        source.execute("insert into t values (2)")
        eventually(lambda: log.execute(IDS).fetchone() == ([1, 2],))
        cluster.create(restored)
        subprocess.run([binaries / "pg_restore", "-d", make_conninfo(database_dsn, dbname=restored), dump], check=True)
        name = sql.Identifier(str(conninfo_to_dict(database_dsn)["dbname"]))
        administrator.execute(sql.SQL("drop database {} with (force)").format(name))
        administrator.execute(sql.SQL("alter database {} rename to {}").format(sql.Identifier(restored), name))
        eventually(lambda: server.process.poll() is not None, STOP_TIMEOUT)
        assert server.process.wait() == 1
        assert "`pipeline sources adopt` continues with this gap" in server.log()
        with psycopg.connect(database_dsn) as log:
            assert log.execute(IDS).fetchone() == ([1],)
