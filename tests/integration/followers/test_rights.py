"""A user who may not do what an applier does: each refusal has the grant that cures it, until it is taken."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pipeline.errors import SchemaChangeError
from pipeline.followers.applying import position
from pipeline.followers.operating import adding as add_follower
from pipeline.followers.registry import FollowerOptions
from pipeline.followers.schema_changes import alterations
from pipeline.followers.schema_changes.alterations import TableAlteration
from tests.fixtures.followers import TABLES, Adding, run
from tests.fixtures.postgres import unique


@pytest.fixture
def role(follower_dsn: str) -> Iterator[str]:
    """A role that may do nothing."""
    name = unique("role")
    run(follower_dsn, f"create role {name} login; revoke create on schema public from public")
    yield name
    run(follower_dsn, f"reassign owned by {name} to current_user; drop owned by {name}")
    run(follower_dsn, f"revoke set on parameter session_replication_role from {name}; drop role {name}")


def cure(follower_dsn: str, said: str) -> None:
    """Run the statement that it names."""
    assert "; run there: " in said, said
    run(follower_dsn, said.rpartition("; run there: ")[2])


def test_all_rights_that_the_user_lacks_are_named_at_once(adding: Adding, follower_dsn: str, role: str) -> None:
    source, database = adding.known.config.source, conninfo_to_dict(follower_dsn)["dbname"]
    run(follower_dsn, "create schema other; create table other.unrelated (id int)")
    run(follower_dsn, f"revoke temporary on database {database} from public")
    run(source, "create schema other; create table other.t (id int primary key); create schema fresh")
    run(source, "create table fresh.t (id int primary key); create table other.u (id int primary key)")
    run(source, "create type fresh.mood as enum ('ok'); alter table other.u add mood fresh.mood")
    run(source, "alter publication pipeline add table other.t, other.u, fresh.t")
    run(follower_dsn, "create table orders (id int primary key, state text)")
    run(follower_dsn, "create table parted (id int primary key)")
    dsn = make_conninfo(follower_dsn, user=role)
    said = adding.refused(dsn)
    user = f'user "{role}" may not'
    for expected in (
        f'"reports": {user} set session_replication_role, so triggers and foreign keys of the follower would act; ',
        f"{user} create temporary tables, which the server needs for new rows; ",
        f"{user} create the schema pipeline_follower; ",
        f"{user} create fresh.t; ",
        f"{user} create other.t, other.u; ",
        "; 2 rights more; it lacks what its tables need: type fresh.mood (for other.u); let an administrator there run",
    ):
        assert expected in said, said
    script = add_follower.missing_sql(
        adding.known.config, adding.known.source, adding.known.log, "r", dsn, FollowerOptions()
    )
    tables = '"public"."orders", "public"."parted"'
    assert f'grant select, insert, update, delete, truncate on {tables} to "{role}";' in script
    assert script.count(f'grant create on database "{database}" to "{role}";') == 1
    run(follower_dsn, "\n".join(script))
    adding.add(dsn)


def test_a_schema_of_an_applier_that_another_user_made(adding: Adding, follower_dsn: str, role: str) -> None:
    run(follower_dsn, TABLES)
    with psycopg.connect(follower_dsn, autocommit=True) as connection:
        position.install(connection)
    run(follower_dsn, f'grant all on orders, parted, "Odd name" to {role}')
    run(follower_dsn, f"grant set on parameter session_replication_role to {role}")
    refusal = adding.refused(make_conninfo(follower_dsn, user=role))
    assert "may not use the schema pipeline_follower and its tables; run there: grant usage, create on" in refusal
    cure(follower_dsn, refusal)
    adding.add(make_conninfo(follower_dsn, user=role))


def test_row_security(adding: Adding, follower_dsn: str, role: str) -> None:
    run(follower_dsn, f"{TABLES} alter table orders enable row level security")
    run(
        follower_dsn,
        f'grant all on orders, parted, "Odd name" to {role}; grant set on parameter session_replication_role to {role}',
    )
    with psycopg.connect(follower_dsn, autocommit=True) as connection:
        connection.execute(f"grant create on database {connection.info.dbname} to {role}")
    refusal = adding.refused(make_conninfo(follower_dsn, user=role))
    assert (
        f'row security hides rows of public.orders from user "{role}"; run there: alter role "{role}" with' in refusal
    )
    cure(follower_dsn, refusal)
    adding.add(make_conninfo(follower_dsn, user=role))


def test_a_table_of_another_owner_is_named_with_the_remedy(follower_dsn: str, role: str) -> None:
    run(follower_dsn, "create table orders (id int primary key)")
    added = TableAlteration("the source added column z", sql.SQL("alter table orders add column z int"))
    with (
        psycopg.connect(make_conninfo(follower_dsn, user=role)) as follower,
        pytest.raises(SchemaChangeError) as raised,
    ):
        alterations.run(follower, "reports", ("public", "orders"), [added])
    assert "must be owner of table orders" in str(raised.value)
    assert "let an administrator of the follower make its role the owner of what it alters" in str(raised.value.remedy)


NEEDED = """
    create schema app;
    create type app.mood as enum ('ok', 'it''s');
    create domain app.short as text default 'x' check (length(value) < 9);
    alter domain app.short add constraint later check (value <> 'old') not valid;
    create type app.pair as (mood app.mood, "a b" numeric(9, 2));
    create type app.span as range (subtype = int);
    create function app.sum_of(n int, m int) returns int immutable language sql as $$ select n + m $$;
    create function public.same(n int) returns int immutable language plpgsql as $$ begin return n; end $$;
    create function public.twice_more(n int) returns int immutable language sql as $$ select n $$;
    create function app.twice(n int) returns int immutable strict language sql as
        $$ select app.sum_of(n, public."same" (n)) -- as twice
        $$;
    create sequence public.numbers increment by 3;
    create extension vector schema app;
    create table t1 (id int primary key default nextval('numbers'), moods app.mood[], word app.short,
        spans app.span, near app.vector(2), check (app.twice(id) > 0));
    create table t2 (id int primary key, pair app.pair);
    create index on t2 (app.twice(id));
    alter publication pipeline add table t1, t2
"""


SEARCHED = """
    create schema looked; create schema other;
    create function looked.inner_one(text) returns text immutable language sql as 'select lower($1)';
    create function other.inner_one(text) returns text immutable language sql as 'select upper($1)';
    create function public.outer_one(v text) returns text immutable language plpgsql set search_path = looked, pg_temp
        as 'begin return Inner_one (v); end';
    create table searched (id int primary key, v text, check (public.outer_one(v) <> ''));
    alter publication pipeline add table searched
"""


def test_functions_that_a_body_finds_by_a_search_path_are_named(adding: Adding, follower_dsn: str) -> None:
    source = adding.known.config.source
    run(source, SEARCHED)
    said = adding.refused(follower_dsn)
    assert "function looked.inner_one(pg_catalog.text) (for public.searched)" in said
    assert "other.inner_one" not in said


def test_all_that_tables_need_is_named_at_once_with_the_sql(adding: Adding, follower_dsn: str, role: str) -> None:
    run(adding.known.config.source, NEEDED)
    run(
        follower_dsn, f"grant set on parameter session_replication_role to {role}; grant all on schema public to {role}"
    )
    run(follower_dsn, f"grant create on database {conninfo_to_dict(follower_dsn)['dbname']} to {role}")
    dsn = make_conninfo(follower_dsn, user=role)
    said = adding.refused(dsn)
    for needed in (
        "lacks what its tables need: extension vector (for public.t1), ",
        "type app.mood (for public.t1, public.t2)",
        "type app.short (for public.t1)",
        "type app.pair (for public.t2)",
        "type app.span (for public.t1)",
        "function app.twice(integer) (for public.t1, public.t2)",
        "sequence public.numbers (for public.t1)",
        "function app.sum_of(integer, integer) (for public.t1, public.t2)",
        "function public.same(integer) (for public.t1, public.t2)",
    ):
        assert needed in said.replace(",integer", ", integer"), said
    assert "twice_more" not in said
    assert "run what `pipeline followers add … --sql` prints" in said
    script = add_follower.missing_sql(
        adding.known.config, adding.known.source, adding.known.log, "r", dsn, FollowerOptions()
    )
    assert script[0] == f'create schema if not exists "app" authorization "{role}";'
    assert script[2] == "create extension if not exists vector with schema app;"
    assert not any("later" in statement for statement in script)
    run(follower_dsn, "\n".join(script))
    with psycopg.connect(follower_dsn) as connection:
        owners = connection.execute(
            "select pg_get_userbyid(typowner)::text, pg_get_userbyid(proowner)::text from pg_type, pg_proc"
            " where typname = 'mood' and proname = 'twice'"
        ).fetchall()
    assert owners == [(role, role)]
    assert (
        add_follower.missing_sql(
            adding.known.config, adding.known.source, adding.known.log, "r", dsn, FollowerOptions()
        )
        == []
    )
    adding.add(dsn)
