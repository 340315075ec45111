"""Users that are or can become superusers: each way to get there, and the warning if an owner could use it."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr

from pipeline.operate import role_warnings, superusers
from pipeline.operate.preflight import check
from tests.fixtures.followers import Adding, run
from tests.fixtures.postgres import Cluster, on_old_and_new, unique


@pytest.fixture
def names(any_cluster: Cluster) -> Iterator[dict[str, str]]:
    """Roles: `user` logs in, `group` is between, `boss` is a superuser."""
    made = {name: unique(name) for name in ("user", "group", "boss")}
    with any_cluster.connect() as admin:
        admin.execute(
            "create role {user} login; create role {group}; create role {boss} superuser".format(**made).encode()
        )
        try:
            yield made
        finally:
            admin.execute("revoke alter system on parameter archive_command from {group}".format(**made).encode())
            admin.execute("drop role {user}, {group}, {boss}".format(**made).encode())


WAYS = [
    ("", None),
    ("alter role {user} superuser", "is a superuser"),
    ("grant {boss} to {user}", 'can become the superuser "{boss}"'),
    ("grant {boss} to {group}; grant {group} to {user}", 'can become the superuser "{boss}"'),
    ("alter role {user} noinherit; grant {boss} to {user}", 'can become the superuser "{boss}"'),
    (
        "grant {group} to {user}; grant pg_execute_server_program to {group}",
        "has the rights of pg_execute_server_program",
    ),
    ("grant pg_write_server_files to {user}", "has the rights of pg_write_server_files"),
    (
        "grant alter system on parameter archive_command to {group}; grant {group} to {user}",
        "may alter archive_command",
    ),
    ("alter role {user} replication createdb bypassrls; grant pg_read_all_data, pg_monitor to {user}", None),
]
SINCE_16 = [
    ("grant {boss} to {user} with set false, inherit true", 'can become the superuser "{boss}"'),
    ("grant {boss} to {user} with set false, inherit false", None),
    ("grant {boss} to {group}; grant {group} to {user} with admin true, set false, inherit false", "can become"),
    ("alter role {user} createrole", None),
]
UNTIL_15 = [
    ("alter role {user} createrole", "may create roles"),
    ("alter role {group} createrole; grant {group} to {user}", "may"),
]


@on_old_and_new
def test_each_way_to_become_a_superuser(any_cluster: Cluster, names: dict[str, str]) -> None:
    with any_cluster.connect() as admin:
        for grants, how in WAYS + (SINCE_16 if any_cluster.major >= 16 else UNTIL_15):
            with admin.transaction(force_rollback=True):
                admin.execute((grants or "select").format(**names).encode())
                admin.execute("set session authorization {user}".format(**names).encode())
                found = superusers.reach(admin)
                assert (found or "").startswith((how or "").format(**names)) and bool(found) == bool(how), grants


def test_the_warning_needs_a_table_of_another_role(adding: Adding, follower_dsn: str, source_dsn: str) -> None:
    owner, reader, small = unique("owner"), unique("reader"), unique("small")
    run(source_dsn, f"create role {owner}; create role {reader} login superuser; create role {small} login replication")
    run(follower_dsn, "create table orders (id int primary key, state text)")
    adding.add(follower_dsn)
    config, log = adding.known.config, adding.known.log

    def risks(user: str, reading: str) -> list[str]:
        with psycopg.connect(make_conninfo(source_dsn, user=user), autocommit=True) as source:
            dsns = {"source_dsn": source.info.dsn, "source_read_dsn": make_conninfo(source_dsn, user=reading)}
            given = config.model_copy(update={name: SecretStr(dsn) for name, dsn in dsns.items()})
            return [risk.text for risk in superusers.find(given, source, log)]

    try:
        assert risks("postgres", "postgres") == []
        run(source_dsn, f"alter table orders owner to {owner}")
        said = f'is a superuser, and public.orders belongs to "{owner}": code of that owner may run with the user'
        said += "'s rights"
        at_follower = f'user "postgres" of follower "reports" {said}'
        assert risks("postgres", "postgres") == [f'user "postgres" at the source {said}', at_follower]
        assert risks(small, reader) == [f'user "{reader}" at the source {said}', at_follower]
        assert risks(small, small) == [at_follower]
        assert role_warnings.read(config) == [
            f'user "postgres" at the source {said}; {superusers.REMEDY}',
            f"{at_follower}; {superusers.FOLLOWER_REMEDY}",
        ]
        found = [each for each in check.run(config) if each.name == "superuser"]
        assert [each.level for each in found] == ["warning", "warning"]
        assert 'create role "pipeline" login replication' in found[0].sql[0]
        assert found[1].sql == []
    finally:
        run(source_dsn, f"alter table orders owner to current_user; drop role {owner}, {reader}, {small}")
