"""DDL at the source, and what it makes of a follower: tests assert it, and docs/reference/follower-outcomes.md says it.

In all texts `$t` stands for the table of tests/fixtures/schema_changes.py, which is at both sides, and `$name` for the
follower. Each statement is its own transaction.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Change:
    """The follower's table is altered in its place, or `copied`; `tables` are equal to the source's after either.

    `outcome`: in words, where these two are not it. `there`: what the follower has besides.
    """

    statements: tuple[str, ...]
    copied: bool = False
    outcome: str = ""
    there: tuple[str, ...] = ()
    tables: tuple[str, ...] = ("$t",)


@dataclass(frozen=True)
class Stop:
    """A follower that stops, or a table that is not copied, with this reason and remedy.

    `options`: of the follower. `there`: what it has besides. `repaired`: statements that let it continue.
    `called`: the table's name at the source then.
    """

    statements: tuple[str, ...]
    reason: str
    remedy: str
    options: dict[str, Any] = field(default_factory=dict)
    there: tuple[str, ...] = ()
    repaired: tuple[str, ...] = ()
    called: str = "$t"


def _followed(*statements: str) -> Change:
    return Change(statements)


def _copied(*statements: str) -> Change:
    return Change(statements, copied=True)


COLUMNS_AND_KEYS = {
    "added": _followed("alter table $t add c int", "insert into $t (id, c) values (2, 5)"),
    "added twice in one transaction": _followed(
        "insert into $t values (2, 'x'); alter table $t add c int; insert into $t (id, c) values (3, 5);"
        " alter table $t add d numeric(5, 2); insert into $t (id, c, d) values (4, 5, 1.5)",
    ),
    "dropped": _followed("alter table $t drop b", "update $t set a = 'a2'"),
    "dropped and added again": _followed("alter table $t drop b, add b int", "insert into $t (id, b) values (2, 5)"),
    "renamed": _followed("alter table $t rename a to c", "update $t set c = 'c2' where id = 1"),
    "exchanged": _followed(
        "alter table $t rename a to c; alter table $t rename b to a; alter table $t rename c to b",
        "update $t set a = 'was b' where id = 1",
    ),
    "renamed within a transaction": _followed(
        "insert into $t values (2, 'a2', 'b2'); alter table $t rename a to c; alter table $t rename b to a;"
        " update $t set c = 'c3' where id = 2; insert into $t values (3, 'c3', 'a3')",
    ),
    "renamed to an earlier name": _followed(
        "alter table $t rename a to c",
        "insert into $t (id, c) values (2, 'c2')",
        "alter table $t rename b to a",
        "insert into $t (id, a, c) values (3, 'a3', 'c3')",
    ),
    "widened": _followed("alter table $t alter n type varchar(20)", "update $t set n = 'longer than five'"),
    "any length": _followed("alter table $t alter n type text", "update $t set n = 'longer than five'"),
    "key of two columns": _followed(
        "alter table $t alter b set not null, drop constraint $t_pkey, add primary key (id, b)",
        "insert into $t values (1, 'a1', 'b2'), (2, 'a', 'b')",
        "update $t set a = 'by both' where b = 'b2'",
    ),
    "another key": _followed(
        "alter table $t alter b set not null, drop constraint $t_pkey, add primary key (b)",
        "insert into $t values (1, 'a1', 'b2')",
        "update $t set b = 'b3' where b = 'b2'",
        "delete from $t where b = 'b1'",
    ),
    "another key, deferrable": _followed(
        "alter table $t alter b set not null, drop constraint $t_pkey, add primary key (b) deferrable,"
        " replica identity full",
        "insert into $t values (1, 'a2', 'b2'), (1, 'a3', 'b3')",
        "update $t set b = case b when 'b2' then 'b3' else 'b2' end where b <> 'b1'; delete from $t where b = 'b2'",
    ),
    "a key that becomes deferrable": _followed(
        "insert into $t values (2, 'a2', 'b2'), (3, 'a3', 'b3')",
        "alter table $t drop constraint $t_pkey, add primary key (id) deferrable initially deferred,"
        " replica identity full",
        "update $t set id = case id when 2 then 3 else 2 end where id > 1",
        "update $t set id = id + 1; insert into $t values (3, 'new'); delete from $t where id = 3 and a <> 'new'",
    ),
    "a key that becomes deferrable under a full identity": _followed(
        "alter table $t replica identity full",
        "insert into $t values (2, 'a2', 'b2'), (3, 'a3', 'b3'); update $t set id = 4 where id = 1",
        "alter table $t drop constraint $t_pkey, add primary key (id) deferrable",
        "update $t set id = case id when 2 then 3 when 3 then 2 else id end",
        "update $t set id = id + 1; delete from $t where id = 3",
    ),
    "a key that is deferrable for a while": _followed(
        "alter table $t drop constraint $t_pkey, add primary key (id) deferrable, replica identity full",
        "insert into $t values (2, 'a2', 'b2'); update $t set id = 3 - id; update $t set a = 'a3' where id = 1",
        "alter table $t drop constraint $t_pkey, add primary key (id), replica identity default",
        "update $t set id = 7 where id = 2",
    ),
    "another key with the old name": _followed(
        "alter table $t add new_id bigint; update $t set new_id = id",
        "alter table $t drop id; alter table $t rename new_id to id; alter table $t add primary key (id)",
        "insert into $t (id, a) values (5000000000, 'a2')",
        "update $t set a = 'a3' where id = 5000000000; delete from $t where id = 1",
    ),
    "without a key": _followed(
        "alter table $t drop constraint $t_pkey; alter table $t replica identity full",
        "insert into $t values (1, 'a1', 'b1', 'n1')",
        "update $t set a = 'a2' where ctid = (select min(ctid) from $t)",
    ),
}

REWRITES = {
    "default": _copied("alter table $t add c int not null default 7", "insert into $t values (5, 'a5')"),
    "volatile default": _copied("alter table $t add c float8 default random()", "insert into $t values (5, 'a5')"),
    "type": _copied("alter table $t alter n type int using length(n)", "insert into $t values (5, 'a5', 'b5', 5)"),
    "type of the key": _copied("alter table $t alter id type bigint", "insert into $t values (5000000000, 'a5')"),
    "another key with its name": _copied(
        "alter table $t add new_id bigint; update $t set new_id = id",
        "alter table $t drop id; alter table $t rename new_id to id; alter table $t add primary key (id);"
        " alter table $t add c int not null default 7",
    ),
    "using": _copied("alter table $t alter a type text using upper(a) || '!'", "update $t set b = 'b2' where id = 2"),
    "text to a number": _copied(
        "update $t set a = id::text",
        "alter table $t alter a type int using a::int * 10",
        "update $t set b = 'b2' where id = 2",
    ),
    "with other changes": _copied(
        "alter table $t drop b; alter table $t rename a to b; alter table $t add d int default 3;"
        " alter table $t alter n type int using 1; insert into $t values (5, 'b5', 1, 1)",
    ),
    "twice": _copied(
        "alter table $t add c int not null default 7",
        "insert into $t values (5, 'a5')",
        "alter table $t alter c type text using 'seven'",
        "insert into $t values (6, 'a6')",
    ),
}

_MOOD = "create type $t_mood as enum ('sad', 'ok')"
TABLES = {
    "another name": Change(
        ("alter table $t rename to $t_over", "update $t_over set a = 'x'"),
        tables=("$t_over",),
    ),
    "a new table": Change(
        ("create table $t_new (id int primary key, a text unique)", "insert into $t_new values (1, 'new')"),
        copied=True,
        outcome="created with its keys and indexes, and copied",
        tables=("$t", "$t_new"),
    ),
    "dropped and created again": Change(
        ("drop table $t", "create table $t (id bigint primary key, d int)", "insert into $t values (7, 1)"),
        copied=True,
    ),
    "a label of an enum added": Change(
        (
            _MOOD,
            "alter table $t add m $t_mood",
            "alter type $t_mood add value 'so so' after 'sad'",
            "insert into $t (id, m) values (2, 'so so')",
        ),
        there=(_MOOD,),
    ),
    "a label of an enum renamed": Change(
        (
            _MOOD,
            "alter table $t add m $t_mood",
            "alter type $t_mood rename value 'ok' to 'fine'",
            "insert into $t (id, m) values (2, 'fine')",
        ),
        there=(_MOOD,),
    ),
}
EXCHANGED = Change(
    (
        "alter table $t rename to $t_over",
        "alter table $t_other rename to $t",
        "alter table $t_over rename to $t_other",
        "update $t set a = a || ' changed'",
    ),
)
DROPPED = Change(("drop table $t",), outcome="stays as it is", tables=())
PARTITIONED = Change(("alter table $t rename a to b", "update $t set b = 'b101' where id = 101"), copied=True)
"""Of a table with a partition whose columns have other numbers."""

STOPS = {
    "`--ddl stop`": Stop(
        ("insert into $t values (2)", "alter table $t add age int", "insert into $t (id, age) values (3, 5)"),
        "table public.$t of the follower stops: the source added column age (integer) to public.$t, and --ddl is stop",
        '`alter table "public"."$t" add column "age" integer` there; it is tried again by itself',
        options={"ddl": "stop"},
        repaired=('alter table "public"."$t" add column "age" integer',),
    ),
    "`--ddl stop`, a new table": Stop(
        ("create table $t_new (id int primary key, a text)", "insert into $t_new values (2, 'after')"),
        "the follower stops: table public.$t_new is new at the source, and --ddl is stop",
        "remove it, and add it again with its table public.$t_new: `pipeline followers remove $name`;"
        " it is tried again by itself",
        options={"ddl": "stop"},
    ),
    "`--on-rewrite stop`": Stop(
        ("alter table $t add c int not null default 7", "insert into $t values (5, 'a5')"),
        "table public.$t of the follower stops: DDL has changed values of c at the source without events, and"
        " --on-rewrite is stop",
        "`pipeline followers resync $name public.$t`; it is tried again by itself",
        options={"on_rewrite": "stop"},
    ),
    "a view needs a column that was dropped": Stop(
        ("alter table $t drop b", "update $t set a = 'a2'"),
        "table public.$t of the follower stops: the source dropped column b of public.$t, and the follower refuses"
        " that: cannot drop column b of table public.$t because other objects depend on it (SQLSTATE 2BP01)",
        'see that `alter table "public"."$t" drop column "b"` can be run there; it is tried again by itself',
        there=("create view looks as select b from $t",),
        repaired=("drop view looks",),
    ),
    "a type is missing": Stop(
        ("create type $t_mood as enum ('sad', 'ok')", "alter table $t add m $t_mood", "update $t set m = 'ok'"),
        "table public.$t of the follower stops: column m is of type public.$t_mood at the source, which the follower"
        " lacks",
        "`create type public.$t_mood …` there; it is tried again by itself",
        repaired=("create type $t_mood as enum ('sad', 'ok')",),
    ),
    "labels of an enum were renamed and added": Stop(
        (
            "create type $t_mood as enum ('sad', 'ok')",
            "alter table $t add m $t_mood",
            "alter type $t_mood rename value 'ok' to 'fine'; alter type $t_mood add value 'bad'",
            "update $t set m = 'fine'",
        ),
        "the follower stops: labels of type public.$t_mood were renamed at the source, and it is not clear to what",
        "`alter type public.$t_mood rename value 'ok' to …` there; it is tried again by itself",
        there=("create type $t_mood as enum ('sad', 'ok')",),
        repaired=("alter type $t_mood rename value 'ok' to 'fine'",),
    ),
    "a column of the follower takes no null": Stop(
        ("insert into $t values (2)",),
        "table public.$t of the follower stops: its column own takes no null, and the source gives it no value",
        "`alter table public.$t alter column own drop not null` there, or give it a default;"
        " it is tried again by itself",
        there=("alter table $t add own text not null default 'old'", "alter table $t alter own drop default"),
        repaired=("alter table $t alter own set default 'new'",),
    ),
    "a column of the follower has the name": Stop(
        ("alter table $t rename a to c", "update $t set c = 'c2'"),
        "table public.$t of the follower stops: column a was renamed to c at the source, and the follower's table has"
        " another column c",
        "`alter table public.$t rename column c to …` there; it is tried again by itself",
        there=("alter table $t add c text default 'own'",),
        repaired=("alter table $t rename c to own",),
    ),
    "something else at the follower has the name": Stop(
        ("alter table $t rename to $t_over", "update $t_over set a = 'x'"),
        "table public.$t of the follower stops: the source calls it public.$t_over now, and the follower has something"
        " else of that name",
        "`alter table public.$t_over rename to …` there; it is tried again by itself",
        there=("create view $t_over as select 1 as one",),
        repaired=("alter view $t_over rename to looks",),
        called="$t_over",
    ),
}

WAITS = {
    "a view needs a column of another type": Stop(
        ("alter table $t alter n type int using 1", "insert into $t values (2)"),
        "cannot be copied: table public.$t of the follower stops: the source made column n of type integer in"
        " public.$t, and the follower refuses that: cannot alter type of a column used by a view or rule"
        " (SQLSTATE 0A000)",
        'see that `alter table "public"."$t" alter column "n" drop default, alter column "n" type integer using'
        ' "n"::integer` can be run there; it is tried again by itself',
        there=("create view looks as select n from $t",),
        repaired=("drop view looks",),
    ),
}
"""The follower's other tables go on, and readers see what this one had before."""
