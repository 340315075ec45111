"""What a server refuses at its start: what neither waiting nor a running server can cure, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from pipeline.config import settings
from pipeline.config.settings import Config
from pipeline.errors import DatabaseUnavailableError, NotReadyError
from pipeline.findings import CheckFinding
from pipeline.operate.preflight import check
from pipeline.postgres import migrations, role_locks
from pipeline.server import serve
from tests.fixtures.postgres import Cluster, unique

ENCODING = "pipeline database encoding"


@pytest.fixture
def config(source_dsn: str, database_dsn: str, slot_name: str) -> Config:
    return settings.load(source_dsn=source_dsn, database_dsn=database_dsn, slot=slot_name)


@pytest.fixture
def unfit(config: Config, cluster: Cluster) -> Iterator[Config]:
    """With a pipeline database that cannot hold every text."""
    name = unique("ascii")
    with cluster.connect() as connection:
        connection.execute(
            sql.SQL("create database {} encoding 'SQL_ASCII' locale 'C' template template0").format(
                sql.Identifier(name)
            )
        )
    yield config.with_databases(config.source, cluster.dsn(name))
    cluster.drop(name)


def test_what_check_finds_is_refused_before_anything_is_changed(unfit: Config):
    with pytest.raises(NotReadyError, match=f"^{ENCODING}: .*; fix it, or start with --accept '{ENCODING}'$"):
        serve.boot(unfit)
    assert migrations.current(unfit.database) is None
    serve.boot(unfit.model_copy(update={"accept": (ENCODING,)}))
    assert migrations.current(unfit.database) == migrations.head()
    serve.boot(unfit, [ENCODING])


@pytest.mark.parametrize("waits", [True, False])
def test_only_errors_that_last_are_refused(waits: bool, config: Config, monkeypatch: pytest.MonkeyPatch):
    def findings(*_: object, **__: object) -> list[CheckFinding]:
        return [
            CheckFinding("ok", "a", ""),
            CheckFinding("warning", "b", ""),
            CheckFinding("error", "c", "bad", "do", waits),
        ]

    monkeypatch.setattr(check, "run", findings)
    if waits:
        serve.boot(config)
    else:
        with pytest.raises(NotReadyError, match=r"^c: bad \(do\); fix it"):
            serve.boot(config)


def test_no_table_that_matches_is_an_error_to_start_with(config: Config):
    with psycopg.connect(config.source, autocommit=True) as source:
        source.execute("create table t (id int primary key)")
    serve.boot(config.model_copy(update={"tables": ("nowhere.*",)}))


def test_a_standby_and_the_api_alone_ask_nothing_of_the_source(config: Config):
    away = config.with_databases(make_conninfo(config.source, host="127.0.0.1", port="1"), config.database)
    with pytest.raises(DatabaseUnavailableError):
        serve.boot(away)
    serve.boot(away, reads_source=False)
    with psycopg.connect(config.database, autocommit=True) as other:
        assert role_locks.try_acquire(other, "replication")
        role_locks.report(other, "replication", "elsewhere:1", 1, "running")
        serve.boot(away)
