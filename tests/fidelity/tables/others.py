"""Tables by where they are and what they are: unlogged, temporary, views, of extensions, later, of one name."""

from __future__ import annotations

from tests.fidelity.tables.case import AtFollower, Kind, Stop, delete, insert, truncate, update

CASES = (
    Kind(
        "unlogged, temporary",
        "nothing, because Postgres writes no WAL that it can decode",
        "create unlogged table u (id int primary key); create temporary table x (id int primary key)",
        (
            "insert into u values (1); update u set id = 2; insert into x values (1); update x set id = 2;"
            "truncate u, x; drop table x",
        ),
        (),
        after="insert into u values (1)",
        follower=AtFollower("nothing", {"u": None}),
    ),
    Kind(
        "unlogged that becomes logged",
        "everything from then on; existing rows only when they are written again",
        "create unlogged table u (id int primary key, note text)",
        (
            "insert into u values (1, 'a')",
            "alter table u set logged",
            "insert into u values (2, 'a'); update u set note = 'b'",
        ),
        (
            insert("u", "2", {"id": 2, "note": "a"}),
            update("u", "1", {"id": 1, "note": "b"}),
            update("u", "2", {"id": 2, "note": "b"}),
        ),
        follower=AtFollower("created, copied, and equal from then on"),
    ),
    Kind(
        "view, materialized view, foreign table",
        "nothing; rows that are written through a view are changes of its table",
        "create table t (id int primary key); create view v as select * from t;"
        "create materialized view m as select * from t; create foreign data wrapper w_{schema};"
        "create server s_{schema} foreign data wrapper w_{schema};"
        "create foreign table f (id int) server s_{schema}",
        ("insert into v values (1); refresh materialized view m; update v set id = 2; delete from v",),
        (insert("t", "1", {"id": 1}), update("t", "2", {"id": 2}, {"id": 1}), delete("t", "2", {"id": 2})),
        after="insert into v values (1); refresh materialized view m",
        follower=AtFollower("`t` equal, none of the others", {"f": None}),
    ),
    Kind(
        "table of an extension",
        "everything, as for any other table",
        "create table t (id int primary key); alter extension plpgsql add table t",
        ("insert into t values (1); delete from t; alter extension plpgsql drop table t",),
        (insert("t", "1", {"id": 1}), delete("t", "1", {"id": 1})),
        after="insert into t values (1)",
        follower=AtFollower(
            "equal, once its extension or a user creates it there",
            stops=(
                Stop(
                    "cannot be copied: the follower has no table public.t: make it there, or leave it out",
                    "it is tried again by itself",
                    "create table t (id int primary key)",
                ),
            ),
        ),
    ),
    Kind(
        "table that comes later",
        "everything, at the latest from two seconds after its creation",
        "",
        (
            "create table t (id int primary key); create table k (id int)",
            "insert into t values (1); update t set id = 2",
        ),
        (insert("t", "1", {"id": 1}), update("t", "2", {"id": 2}, {"id": 1})),
        follower=AtFollower("created, copied, and equal from then on"),
        after="insert into k values (1)",
    ),
    Kind(
        "names that need quotes",
        "everything, under the name without its quotes, up to 63 bytes; the same name in two schemas is two tables",
        'create table "%s {{}} ""T"".*" ("a b" int, "%(x)s" text, "č""" int, primary key ("č""", "a b"));'
        f'create table {"n" * 63} ({"c" * 63} int primary key); create table "line\nbreak" (id int primary key)',
        (
            """insert into "%s {{}} ""T"".*" values (1, '%s', 2); update "%s {{}} ""T"".*" set "a b" = 3;"""
            f'insert into {"n" * 63} values (1); insert into "line\nbreak" values (1)',
        ),
        (
            insert('%s {{}} "T".*', "[1,2]", {"a b": 1, "%(x)s": "%s", 'č"': 2}),
            update('%s {{}} "T".*', "[3,2]", {"a b": 3, "%(x)s": "%s", 'č"': 2}, {"a b": 1}),
            insert("n" * 63, "1", {"c" * 63: 1}),
            insert("line\nbreak", "1", {"id": 1}),
        ),
    ),
    Kind(
        "table that is dropped and made again",
        "everything of both tables; the drop is no event",
        "create table t (id int primary key)",
        (
            "insert into t values (1)",
            "drop table t; create table t (id text primary key)",
            "insert into t values ('a'); truncate t",
        ),
        (insert("t", "1", {"id": 1}), insert("t", "a", {"id": "a"}), truncate("t")),
        after="insert into t values ('b')",
        follower=AtFollower("copied again, and equal"),
    ),
    Kind(
        "written by rules, triggers, foreign keys, merge, copy",
        "every row that changes, in the order of the changes",
        "create table p (id int primary key); "
        "create table c (id int primary key, p int references p on delete cascade on update cascade);"
        "create table l (n int generated always as identity primary key, what text);"
        "create function note() returns trigger language plpgsql as"
        " 'begin insert into l (what) values (tg_op); return null; end';"
        "create trigger t after insert or delete on p for each row execute function note()",
        (
            "insert into p values (1), (2); insert into c values (1, 1); update p set id = 3 where id = 1;"
            "delete from p where id = 3;"
            "merge into p using (values (2), (4)) v (id) on p.id = v.id when matched then delete"
            " when not matched then insert values (v.id);"
            "insert into p values (4) on conflict (id) do update set id = 5;"
            "insert into p values (5) on conflict do nothing",
        ),
        (
            insert("p", "1", {"id": 1}),
            insert("p", "2", {"id": 2}),
            insert("l", "1", {"n": 1, "what": "INSERT"}),
            insert("l", "2", {"n": 2, "what": "INSERT"}),
            insert("c", "1", {"id": 1, "p": 1}),
            update("p", "3", {"id": 3}, {"id": 1}),
            update("c", "1", {"id": 1, "p": 3}),
            delete("p", "3", {"id": 3}),
            delete("c", "1", {"id": 1}),
            insert("l", "3", {"n": 3, "what": "DELETE"}),
            delete("p", "2", {"id": 2}),
            insert("p", "4", {"id": 4}),
            insert("l", "4", {"n": 4, "what": "DELETE"}),
            insert("l", "5", {"n": 5, "what": "INSERT"}),
            update("p", "5", {"id": 5}, {"id": 4}),
        ),
    ),
)
