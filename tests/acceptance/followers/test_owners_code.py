"""Code of an owner of types, tables and functions: what only reads at a follower or at its source runs none of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.fixtures.postgres import Cluster, unique
from tests.fixtures.served_follower import Following
from tests.fixtures.waiting import eventually

OBJECTS = (
    "domain",
    "cast",
    "operator",
    "composite",
    "range",
    "view",
    "rule",
    "policy",
    "generated",
    "planned",
    "trigger",
)
"""Each has its own function that counts when a session that reads runs it; `planned`: what any planner runs."""
READERS = "pipeline follower%"
"""What the sessions are called that read users' tables for followers."""
FUNCTION = """
create function app.ran_{0}() returns void language plpgsql as $$ begin return; end $$;
create function app.{0}(value text) returns boolean language plpgsql immutable as $$
begin
    if current_setting('application_name') like '{1}' then perform app.ran_{0}(); end if;
    perform app.harm();
    return true;
end $$;
"""
TYPES = """
create domain app.number as int check (app.domain(value::text));
create domain app.numbers as int[] check (app.domain(value::text));
create type app.color as enum ('red', 'blue');
create type app.size as enum ('small', 'large');
create function app.to_text(app.color) returns text language sql as $$ select app.cast('')::text $$;
create function app.to_text(app.size) returns text language sql as $$ select app.cast('')::text $$;
create function app.to_json(app.color) returns json language sql as $$ select to_json(app.cast('')) $$;
create function app.of_text(text) returns app.color language sql as
    $$ select case when app.cast('') then 'red'::app.color end $$;
create function app.of_numbers(app.number[]) returns int[] language sql as $$ select array[app.cast('')::int] $$;
create cast (app.color as text) with function app.to_text(app.color) as assignment;
create cast (app.color as json) with function app.to_json(app.color) as implicit;
create cast (text as app.color) with function app.of_text(text);
create cast (app.size as text) with function app.to_text(app.size) as implicit;
create cast (app.number[] as int[]) with function app.of_numbers(app.number[]) as implicit;
create function app.equal(int, int) returns boolean language sql as
    $$ select app.operator('') and $1 operator(pg_catalog.=) $2 $$;
create function app.equal(app.color, app.color) returns boolean language sql as
    $$ select app.operator('') and $1 operator(pg_catalog.=) $2 $$;
create operator app.= (leftarg = int, rightarg = int, function = app.equal);
create operator app.= (leftarg = app.color, rightarg = app.color, function = app.equal);
create function app.count(bigint) returns bigint language sql as $$ select app.operator('')::int::bigint $$;
create function app.concat(app.color) returns text language sql as $$ select app.operator('')::text $$;
create type app.pair as (a app.number, b app.color);
create function app.apart(int, int) returns float8 language sql immutable as
    $$ select case when app.range('') then 1.0 end $$;
create type app.span as range (subtype = int, subtype_diff = app.apart);
"""
TABLES = {
    "by_domain": "id app.number primary key, list app.numbers, lists app.number[], note app.color",
    "by_array": "id app.number[] primary key, note text",
    "by_enum": "id app.color, part app.number, pair app.pair, span app.span, primary key (id, part)",
    "by_size": "id app.size primary key, note text",
    "by_pair": "id app.pair primary key, note text",
    "by_span": "id app.span primary key, note text",
    "ruled": "id int primary key, note text",
    "guarded": "id int primary key, note app.color",
    "computed": "id int primary key, twice boolean generated always as (app.generated(id::text)) stored",
    "planned": "id int primary key, note text, check (app.planned(note))",
}
MORE = """
create rule ruled as on insert to app.ruled do also select app.rule('');
alter table app.guarded enable row level security;
create policy guarded on app.guarded using (app.policy(''));
create index on app.planned (app.planned('expression'));
create index on app.planned (id) where app.planned('predicate');
create statistics app.stats on app.planned('statistics'), id from app.planned;
"""
ROWS = {
    "by_domain": "(1, '{1,2}', '{1}', 'red'), (2, null, null, 'blue')",
    "by_array": "('{1}', 'x'), ('{2}', 'y')",
    "by_enum": "('red', 1, '(1,red)', '[1,3)'), ('blue', 1, null, null)",
    "by_size": "('small', 'x')",
    "by_pair": "('(1,red)', 'x')",
    "by_span": "('[1,3)', 'x')",
    "ruled": "(1, 'x')",
    "guarded": "(1, 'red')",
    "computed": "(1)",
    "planned": "(1, 'x')",
}
REFUSED = {"app.by_size": "drop that cast", "app.by_pair": "composite", "app.by_span": "a range"}
TRIGGER = """
create function app.fire() returns trigger language plpgsql as $$ begin perform app.trigger(''); return new; end $$;
create trigger fires before insert or update on app.ruled for each row execute function app.fire();
alter table app.ruled enable always trigger fires;
"""


LOOKED_UP_FIRST = """
do $$ begin
    execute format('alter database %I set search_path = app, public, pg_catalog', current_database());
    execute format('alter database %I set track_functions = pl', current_database());
end $$
"""


HARM = """
create function app.harm() returns void language plpgsql as $$
declare harm text;
begin
    -- A role may set its own password in a transaction that writes: only sessions that read are to prevent it.
    foreach harm in array case when current_user <> '{role}' then '{{}}'::text[] else array[
        'alter role {role} superuser',
        'alter role {role} createrole replication',
        'select pg_catalog.pg_drop_replication_slot(' || quote_literal('{role}') || ')',
        'copy (select 1) to program ' || quote_literal('touch {file}'),
        case when current_setting('application_name') like '{readers}' then 'alter role {role} password null' end
    ] end loop
        begin
            execute harm;
        exception when others then null;
        end;
    end loop;
end $$;
"""


@pytest.fixture
def following(following_alone: Following) -> Following:
    """The whole source looks up names among the owner's objects first."""
    return following_alone


def built(role: str = "", file: object = "") -> str:
    """Statements that make all objects, and let new sessions look up names among them first.

    The functions do harm as this role, if they can.
    """
    functions = HARM.format(role=role, file=file, readers=READERS)
    functions += "".join(FUNCTION.format(each, READERS) for each in OBJECTS)
    tables = "".join(f"create table app.{name} ({columns});" for name, columns in TABLES.items())
    return "".join(["create schema app;", functions, TYPES, tables, MORE, LOOKED_UP_FIRST])


ROLE = """
create role {role} login password 'own';
alter schema app owner to {role};
alter schema public owner to {role};
do $$ declare each record; begin
    for each in select format('app.%I', tablename) as name from pg_tables where schemaname = 'app' loop
        execute format('alter table %s owner to {role}', each.name);
    end loop;
    for each in select oid::regtype as name from pg_type where typnamespace = 'app'::regnamespace
        and (typtype in ('d', 'e', 'r') or oid = 'app.pair'::regtype) loop
        execute format('alter type %s owner to {role}', each.name);
    end loop;
    execute format('grant create on database %I to {role}', current_database());
end $$;
grant set on parameter session_replication_role to {role};
select pg_create_physical_replication_slot('{role}', true);
"""
"""What a follower's role needs; and a slot that no code may drop as this role."""


@pytest.fixture
def role(follower_cluster: Cluster) -> Iterator[str]:
    name = unique("small")
    yield name
    with follower_cluster.connect() as connection:
        connection.execute("select pg_drop_replication_slot(%s)", [name])
        connection.execute(f"revoke set on parameter session_replication_role from {name}".encode())
        connection.execute(f"drop role {name}".encode())


@pytest.fixture
def follower_dsn(role: str, follower_dsn: str) -> str:
    """The role goes after its database."""
    return follower_dsn


@pytest.fixture
def prepared(role: str, tmp_path: Path) -> tuple[str, str]:
    return built(), "".join([built(role, tmp_path / "written"), ";", TRIGGER, ROLE.format(role=role)])


def ran(there: psycopg.Connection) -> set[str]:
    """Objects whose functions a reading session has run, once all of these have ended."""
    sessions = "select from pg_stat_activity where application_name like %s and datname = current_database()"
    eventually(lambda: there.execute(sessions, [f"{READERS}s%"]).rowcount == 0)
    found = there.execute("select funcname from pg_stat_user_functions where funcname like 'ran\\_%'").fetchall()
    return {name.removeprefix("ran_") for (name,) in found}


def states(found: dict[str, Any]) -> dict[str, str]:
    for each in found["tables"]:
        if each["table"] in REFUSED:
            assert REFUSED[each["table"]] in each["reason"], each
    return {each["table"]: each["state"] for each in found["tables"]}


EXPECTED = {f"app.{name}": "refused" if f"app.{name}" in REFUSED else "equal" for name in TABLES}


def rights(there: psycopg.Connection) -> list[Any]:
    """What roles of the cluster may do, their passwords, and its slots."""
    roles = "select rolname, rolsuper, rolcreaterole, rolreplication, rolbypassrls, rolpassword from pg_authid"
    members = "select roleid::regrole::text, member::regrole::text from pg_auth_members"
    slots = "select slot_name::text, restart_lsn::text from pg_replication_slots"
    return [sorted(there.execute(each).fetchall(), key=str) for each in (roles, members, slots)]


def test_no_code_of_an_owner_runs_where_only_is_read(following: Following, role: str, tmp_path: Path):
    """A superuser runs what any planner runs, and nothing else; a small role has no more rights by that."""
    following.add("--tables", "app.*")
    for name, rows in ROWS.items():
        following.source.execute(f"insert into app.{name} values {rows}".encode())
    following.command("wait", "reports")
    found = following.command("verify", "reports")
    assert (states(found), found["ok"]) == (EXPECTED, True)
    assert not following.command("verify", "reports", "app.by_pair", status=1)["ok"]
    copied = [f"app.{name}" for name in TABLES if name != "by_size"]  # an applier cannot compare its keys either
    following.command("resync", "reports", *copied)
    following.command("wait", "reports", "--timeout", "60")
    assert states(following.command("verify", "reports")) == EXPECTED
    for side in (following.source, following.there):
        assert ran(side) == {"planned"}

    following.command("remove", "reports")
    following.there.execute("drop schema pipeline_follower cascade")
    before, small = rights(following.there), f"{following.there.info.dsn} user={role}"
    following.command("add", "small", "--dsn", small, "--copy", "source", "--truncate", "--tables", ",".join(copied))
    following.source.execute("insert into app.ruled values (2, 'y')")
    following.command("wait", "small", "--timeout", "60")
    found = following.command("verify", "small")
    assert states(found) == {name: state for name, state in EXPECTED.items() if name in copied}
    assert rights(following.there) == before
    assert not (tmp_path / "written").exists()
