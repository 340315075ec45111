"""Which database it is: the source, the pipeline database, a follower already, or a copy that only looks like one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pipeline.errors import DatabaseUnavailableError
from tests.fixtures.followers import Adding, asking_for_a_password, standby_of
from tests.fixtures.postgres import Cluster
from tests.fixtures.renumbering_proxy import renumbering_proxy

SECRET = "sentinel-30-geheim"


def test_the_source(adding: Adding, source_dsn: str) -> None:
    name = conninfo_to_dict(source_dsn)["dbname"]
    said = f'follower "reports": database {name} is the source itself; name another database'
    assert adding.refused(source_dsn) == said


def test_the_source_by_another_way(adding: Adding, source_dsn: str, cluster: Cluster) -> None:
    name = str(conninfo_to_dict(source_dsn)["dbname"])
    assert "is the source itself" in adding.refused(cluster.tcp_dsn(name))


def test_the_pipeline_database(adding: Adding, database_dsn: str) -> None:
    assert "is the pipeline database itself; name another database" in adding.refused(database_dsn)


def test_another_database_of_their_cluster_is_a_warning(adding: Adding, cluster: Cluster) -> None:
    with cluster.database("beside") as dsn:
        added = adding.add(dsn)
    said = 'follower "reports": it is in the same cluster as the source and the pipeline database: they share its disk'
    assert [warning[: len(said)] for warning in added.warnings] == [said]


def test_a_follower_already(adding: Adding, follower_dsn: str, follower_cluster: Cluster) -> None:
    adding.add(follower_dsn, "first")
    name = str(conninfo_to_dict(follower_dsn)["dbname"])
    said = adding.refused(follower_cluster.tcp_dsn(name))
    assert f'database {name} is the follower "first" already; name another database, or remove that one first' in said
    with follower_cluster.database("second") as dsn:
        assert adding.add(dsn).warnings == []


def test_a_copy_of_a_follower_is_another_database(adding: Adding, follower_dsn: str, follower_cluster: Cluster) -> None:
    """Copies of a cluster have the same numbers."""
    adding.add(follower_dsn, "first")
    with follower_cluster.database("copy") as dsn, psycopg.connect(dsn) as connection:
        query = "select oid from pg_database where datname = current_database()"
        adding.known.log.execute(
            "update pipeline.followers set database_oid = %s", connection.execute(query).fetchone()
        )
        adding.add(dsn, "second")


def test_a_follower_that_cannot_be_asked_whether_it_is_it(adding: Adding, follower_dsn: str, tmp_path: Path) -> None:
    adding.add(follower_dsn, "first")
    adding.known.log.execute("update pipeline.followers set dsn = %s", (f"host={tmp_path} dbname=x",))
    said = adding.refused(follower_dsn)
    assert 'it may be the database of the follower "first", which does not answer (follower "first" (' in said
    assert said.endswith("or remove that one first: `pipeline followers remove first`")


def test_a_standby(adding: Adding, server_directory: Path) -> None:
    said = adding.refused(standby_of(server_directory).tcp_dsn("postgres"))
    assert "database postgres is a standby, which follows its own primary; name a server that can be written" in said


def test_a_pooler(adding: Adding, follower_cluster: Cluster, follower_dsn: str) -> None:
    direct: dict[str, Any] = conninfo_to_dict(follower_cluster.tcp_dsn(str(conninfo_to_dict(follower_dsn)["dbname"])))
    with renumbering_proxy(int(str(direct["port"]))) as port:
        dsn = make_conninfo(**{**direct, "port": port, "sslmode": "disable", "gssencmode": "disable"})
        said = adding.refused(dsn)
    assert said.startswith('follower "reports": a pooler or proxy is in front of it')
    assert said.endswith("connect to its server directly, not through a pooler such as pgbouncer")


Ways = Callable[[pytest.MonkeyPatch, Path, str], str]


def by_variable(monkeypatch: pytest.MonkeyPatch, _folder: Path, password: str) -> str:
    monkeypatch.setenv("PIPELINE_FOLLOWER_PASSWORD_REPORTS", password)
    return ""


def by_password_file(monkeypatch: pytest.MonkeyPatch, folder: Path, password: str) -> str:
    file = folder / "passwords"
    file.write_text(f"*:*:*:watched:{password}\n")
    file.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(file))
    return ""


def by_named_password_file(monkeypatch: pytest.MonkeyPatch, folder: Path, password: str) -> str:
    by_password_file(monkeypatch, folder, password)
    monkeypatch.delenv("PGPASSFILE")
    return f" passfile={folder / 'passwords'}"


def by_service_file(monkeypatch: pytest.MonkeyPatch, folder: Path, password: str) -> str:
    file = folder / "services"
    file.write_text(f"[reports]\npassword={password}\n")
    monkeypatch.setenv("PGSERVICEFILE", str(file))
    return " service=reports"


def test_passwords(
    adding: Adding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ways: list[Ways] = [by_variable, by_password_file, by_named_password_file, by_service_file]
    wrong = f"{SECRET}-wrong"
    said = []
    with asking_for_a_password("watched", SECRET) as strict:
        dsn = f"{strict.tcp_dsn('postgres')} user=watched"
        said.append(adding.refused(dsn, kind=DatabaseUnavailableError))
        assert "no password supplied; correct the user in --dsn, or the password in PGPASSFILE, a service" in said[0]
        assert said[0].endswith("or PIPELINE_FOLLOWER_PASSWORD_REPORTS")
        for way in ways:
            with monkeypatch.context() as patch:
                said.append(adding.refused(dsn + way(patch, tmp_path, wrong), kind=DatabaseUnavailableError))
                assert 'password authentication failed for user "watched"' in said[-1]
                assert "; correct the user in --dsn, or the password in PGPASSFILE" in said[-1]
            with monkeypatch.context() as patch:
                said.append(repr(adding.add(dsn + way(patch, tmp_path, SECRET))))
                adding.known.log.execute("delete from pipeline.followers")
        with monkeypatch.context() as patch:
            by_variable(patch, tmp_path, SECRET)
            said.append(repr(adding.add(dsn)))
        log = strict.server.log.read_text() if strict.server else ""
    assert SECRET not in " ".join([*said, caplog.text, log])
    assert SECRET not in everything(adding)


def everything(adding: Adding) -> str:
    """All that the pipeline database has in tables."""
    names = adding.known.log.execute(
        "select format('%I.%I', table_schema, table_name) from information_schema.tables"
        " where table_schema in ('pipeline', 'public') and table_type = 'BASE TABLE'"
    ).fetchall()
    rows = [adding.known.log.execute(f"select t::text from {name} t".encode()).fetchall() for (name,) in names]
    assert "watched" in str(rows)
    return str(rows)
