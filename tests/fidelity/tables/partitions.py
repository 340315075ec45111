"""Partitioned and inherited tables."""

from __future__ import annotations

from tests.fidelity.tables.case import AtFollower, Kind, Stop, delete, insert, truncate, update

_KEYED = "create table t (id int, area text, note text, primary key (area, id)) partition by list (area)"
_LEAVES = "; create table a partition of t for values in ('a'); create table b partition of t for values in ('b')"

_RESYNC = "`pipeline followers resync NAME public.t`"
_KEYLESS = Stop(
    "table public.t of the follower stops before seq N: it changes a row by a key that only some partitions have, so"
    " that it cannot be found",
    f"{_RESYNC}, or skip that transaction: `pipeline followers skip-transaction NAME N`",
    resync=True,
)
CASES = (
    Kind(
        "partitioned table",
        "everything, under the name of the root; a row that moves to another partition is a delete and an insert",
        _KEYED + _LEAVES,
        (
            "insert into t values (1, 'a', 'x'); insert into b values (2, 'b', 'x'); "
            "update t set note = 'y' where id = 1;"
            "update t set area = 'b' where id = 1; update t set id = 3 where id = 2; delete from t where id = 1;"
            "update t set id = 4, area = 'a' where id = 3",
        ),
        (
            insert("t", '[1,"a"]', {"id": 1, "area": "a", "note": "x"}),
            insert("t", '[2,"b"]', {"id": 2, "area": "b", "note": "x"}),
            update("t", '[1,"a"]', {"id": 1, "area": "a", "note": "y"}),
            delete("t", '[1,"a"]', {"id": 1, "area": "a"}),
            insert("t", '[1,"b"]', {"id": 1, "area": "b", "note": "y"}),
            update("t", '[3,"b"]', {"id": 3, "area": "b", "note": "x"}, {"id": 2}),
            delete("t", '[1,"b"]', {"id": 1, "area": "b"}),
            delete("t", '[3,"b"]', {"id": 3, "area": "b"}),
            insert("t", '[4,"a"]', {"id": 4, "area": "a", "note": "x"}),
        ),
    ),
    Kind(
        "truncate of a partitioned table",
        "one event for each partition, under the name of the partition",
        _KEYED + _LEAVES,
        ("truncate t", "truncate b"),
        (truncate("a"), truncate("b"), truncate("b")),
        after="insert into t values (1, 'a', 'x'), (2, 'b', 'x'); commit; truncate b",
    ),
    Kind(
        "nested partitions",
        "everything, under the name of the topmost root",
        _KEYED.replace("primary key (area, id)", "primary key (id, area)")
        + "; create table a partition of t for values in ('a') partition by range (id);"
        "create table a1 partition of a for values from (1) to (10);"
        "create table a2 partition of a default; create table b partition of t default",
        (
            "insert into t values (1, 'a', 'x'), (10, 'a', 'x'); insert into a2 values (11, 'a', 'x');"
            "update a set id = 12 where id = 1; update t set area = 'c' where id = 10; truncate a",
        ),
        (
            insert("t", '[1,"a"]', {"id": 1, "area": "a", "note": "x"}),
            insert("t", '[10,"a"]', {"id": 10, "area": "a", "note": "x"}),
            insert("t", '[11,"a"]', {"id": 11, "area": "a", "note": "x"}),
            delete("t", '[1,"a"]', {"id": 1, "area": "a"}),
            insert("t", '[12,"a"]', {"id": 12, "area": "a", "note": "x"}),
            delete("t", '[10,"a"]', {"id": 10, "area": "a"}),
            insert("t", '[10,"c"]', {"id": 10, "area": "c", "note": "x"}),
            truncate("a1"),
            truncate("a2"),
        ),
    ),
    Kind(
        "partition with its columns in another order",
        "everything; `record_pk` has its columns in the order of the root",
        "create table t (id int, area text, note text, primary key (id, area)) partition by list (area);"
        "create table a (note text, gone int, area text not null, id int not null); alter table a drop column gone;"
        "alter table t attach partition a for values in ('a'); create table b partition of t for values in ('b')",
        ("insert into t values (1, 'a', 'x'); update t set id = 2; update t set area = 'b'; delete from t",),
        (
            insert("t", '[1,"a"]', {"id": 1, "area": "a", "note": "x"}),
            update("t", '[2,"a"]', {"id": 2, "area": "a", "note": "x"}, {"id": 1}),
            delete("t", '[2,"a"]', {"id": 2, "area": "a"}),
            insert("t", '[2,"b"]', {"id": 2, "area": "b", "note": "x"}),
            delete("t", '[2,"b"]', {"id": 2, "area": "b"}),
        ),
        after="insert into t values (1, 'a', 'x'), (2, 'b', 'x'); update t set note = 'y'",
    ),
    Kind(
        "partition with another replica identity",
        "each partition by its own identity; if a partition has none, its inserts and truncates",
        _KEYED + _LEAVES + "; create table c partition of t for values in ('c'); create table d partition of t default;"
        "alter table b replica identity full; alter table c replica identity nothing;"
        "create unique index d_note on d (note); "
        "alter table d alter note set not null, replica identity using index d_note",
        (
            "insert into t values (1, 'a', 'x'), (2, 'b', 'x'), (3, 'c', 'x'), (4, 'd', 'x'); "
            "update t set note = 'y';"
            "update t set area = 'c' where id = 2; update t set area = 'a' where id = 3; delete from t; truncate c",
        ),
        (
            insert("t", '[1,"a"]', {"id": 1, "area": "a", "note": "x"}),
            insert("t", '[2,"b"]', {"id": 2, "area": "b", "note": "x"}),
            insert("t", "", {"id": 3, "area": "c", "note": "x"}),
            insert("t", "x", {"id": 4, "area": "d", "note": "x"}),
            update("t", '[1,"a"]', {"id": 1, "area": "a", "note": "y"}),
            update("t", '[2,"b"]', {"id": 2, "area": "b", "note": "y"}, {"note": "x"}),
            update("t", "y", {"id": 4, "area": "d", "note": "y"}, {"note": "x"}),
            delete("t", '[2,"b"]', {"id": 2, "area": "b", "note": "y"}),
            insert("t", "", {"id": 2, "area": "c", "note": "y"}),
            insert("t", '[3,"a"]', {"id": 3, "area": "a", "note": "y"}),
            delete("t", '[1,"a"]', {"id": 1, "area": "a"}),
            delete("t", '[3,"a"]', {"id": 3, "area": "a"}),
            delete("t", "y", {"note": "y"}),
            truncate("c"),
        ),
        after="insert into t values (1, 'a', 'x'), (2, 'b', 'x'), (4, 'd', 'z'); commit;update t set note = note || id",
        follower=AtFollower(
            "copied again if a partition with another key is written; it stops if only some have one",
            stops=(_KEYLESS,),
        ),
    ),
    Kind(
        "partitioned table without a key",
        "inserts and truncates; all changes of partitions that have their own key",
        "create table t (id int not null, area text) partition by list (area)"
        + _LEAVES
        + "; alter table b add primary key (id)",
        ("insert into t values (1, 'a'), (2, 'b'); update t set id = id + 10; delete from t; truncate t",),
        (
            insert("t", "", {"id": 1, "area": "a"}),
            insert("t", "2", {"id": 2, "area": "b"}),
            update("t", "12", {"id": 12, "area": "b"}, {"id": 2}),
            delete("t", "12", {"id": 12}),
            truncate("a"),
            truncate("b"),
        ),
        after="insert into t values (1, 'a'), (2, 'b'); commit; update t set id = id + 10",
        follower=AtFollower(
            "inserts and truncates; it stops if a partition has its own key",
            stops=(_KEYLESS,),
        ),
    ),
    Kind(
        "partition made while the server runs",
        "everything from its first row on",
        _KEYED,
        (
            "create table a partition of t for values in ('a'); insert into t values (1, 'a', 'x');"
            "update t set note = 'y'; delete from t",
        ),
        (
            insert("t", '[1,"a"]', {"id": 1, "area": "a", "note": "x"}),
            update("t", '[1,"a"]', {"id": 1, "area": "a", "note": "y"}),
            delete("t", '[1,"a"]', {"id": 1, "area": "a"}),
        ),
        after="insert into t values (1, 'a', 'x'); update t set note = 'y'",
    ),
    Kind(
        "attach and detach of partitions",
        "everything, before and after; under the name of the root while it is attached, otherwise under its own",
        _KEYED + _LEAVES + "; create table c (like t, primary key (area, id))",
        (
            "insert into c values (1, 'c', 'x')",
            "alter table t attach partition c for values in ('c'); commit; update t set note = 'y'",
            "update t set note = 'z'",
            "alter table t detach partition c; commit; update c set note = 'w'; insert into a values (2, 'a', 'x')",
            "update c set note = 'v'; delete from c; truncate c",
        ),
        (
            insert("c", '[1,"c"]', {"id": 1, "area": "c", "note": "x"}),
            update("t", '[1,"c"]', {"id": 1, "area": "c", "note": "y"}),
            update("t", '[1,"c"]', {"id": 1, "area": "c", "note": "z"}),
            update("c", '[1,"c"]', {"id": 1, "area": "c", "note": "w"}),
            insert("t", '[2,"a"]', {"id": 2, "area": "a", "note": "x"}),
            update("c", '[1,"c"]', {"id": 1, "area": "c", "note": "v"}),
            delete("c", '[1,"c"]', {"id": 1, "area": "c"}),
            truncate("c"),
        ),
        after="insert into c values (1, 'c', 'x'); update t set note = 'z'",
    ),
    Kind(
        "attach of a partitioned table",
        "everything, under the name of the new root",
        _KEYED + "; create table s (id int, area text, note text, primary key (area, id)) partition by list (area);"
        "create table a partition of s for values in ('a')",
        (
            "insert into s values (1, 'a', 'x')",
            "alter table t attach partition s for values in ('a', 'b'); commit; update s set note = 'y'",
            "create table b partition of s for values in ('b'); commit; insert into t values (2, 'b', 'x')",
            "alter table t detach partition s; commit; update s set note = 'z'",
        ),
        (
            insert("s", '[1,"a"]', {"id": 1, "area": "a", "note": "x"}),
            update("t", '[1,"a"]', {"id": 1, "area": "a", "note": "y"}),
            insert("t", '[2,"b"]', {"id": 2, "area": "b", "note": "x"}),
            update("s", '[1,"a"]', {"id": 1, "area": "a", "note": "z"}),
            update("s", '[2,"b"]', {"id": 2, "area": "b", "note": "z"}),
        ),
    ),
    Kind(
        "partition that is dropped",
        "everything until then; the drop is no event",
        _KEYED + _LEAVES,
        (
            "insert into t values (1, 'a', 'x')",
            "delete from a; drop table a; insert into t values (1, 'b', 'x')",
        ),
        (
            insert("t", '[1,"a"]', {"id": 1, "area": "a", "note": "x"}),
            delete("t", '[1,"a"]', {"id": 1, "area": "a"}),
            insert("t", '[1,"b"]', {"id": 1, "area": "b", "note": "x"}),
        ),
    ),
    Kind(
        "unlogged partition",
        "nothing of this partition, because it writes no WAL; everything of the others",
        _KEYED + "; create unlogged table a partition of t for values in ('a');"
        "create table b partition of t for values in ('b')",
        ("insert into t values (1, 'a', 'x'), (1, 'b', 'x'); update t set note = 'y'; truncate t",),
        (
            insert("t", '[1,"b"]', {"id": 1, "area": "b", "note": "x"}),
            update("t", '[1,"b"]', {"id": 1, "area": "b", "note": "y"}),
            truncate("b"),
        ),
        after="insert into t values (1, 'a', 'x'), (1, 'b', 'x')",
        follower=AtFollower("the other partitions", {"t": "equal"}),
    ),
    Kind(
        "unlogged partitioned table",
        "everything of its logged partitions, under the name of the root",
        _KEYED.replace("create table", "create unlogged table")
        + "; create table a partition of t for values in ('a'); create unlogged table b partition of t default",
        ("insert into t values (1, 'a', 'x'), (1, 'b', 'x'); update t set note = 'y'; truncate t",),
        (
            insert("t", '[1,"a"]', {"id": 1, "area": "a", "note": "x"}),
            update("t", '[1,"a"]', {"id": 1, "area": "a", "note": "y"}),
            truncate("a"),
        ),
        upto=17,
        after="insert into t values (1, 'a', 'x'), (1, 'b', 'x')",
        follower=AtFollower("its logged partitions", {"t": "refused"}),
    ),
    Kind(
        "foreign table as a partition",
        "nothing of this partition, because its rows are elsewhere; everything of the others",
        "create table t (id int not null, area text) partition by list (area);"
        "create foreign data wrapper nowhere_{schema}; "
        "create server s_{schema} foreign data wrapper nowhere_{schema};"
        "create foreign table a partition of t for values in ('a') server s_{schema};"
        "create table b partition of t (primary key (id)) for values in ('b')",
        ("insert into t values (1, 'b'); update b set id = 2",),
        (insert("t", "1", {"id": 1, "area": "b"}), update("t", "2", {"id": 2, "area": "b"}, {"id": 1})),
        after="insert into t values (3, 'b')",
        follower=AtFollower(
            "equal, once it is a table without partitions there",
            stops=(
                Stop(
                    "table public.t of the follower has no unique index on its key (id), and can have none,"
                    " because it is partitioned by other columns",
                    "make it there as a table without partitions that has such an index, and run `pipeline followers"
                    " resync NAME public.t`, or leave it out with --tables; it is tried again by itself",
                    "drop table t; create table t (id int primary key, area text)",
                    resync=True,
                ),
            ),
        ),
    ),
    Kind(
        "inherited table",
        "parent and children as separate tables, each by its own key",
        "create table p (id int primary key, note text); create table c (extra text) inherits (p);"
        "create table d (extra text, primary key (id)) inherits (p); create table e (x int) inherits (c, d)",
        (
            "insert into p values (1, 'a'); insert into c values (1, 'a', 'x'); insert into d values (2, 'a', 'x');"
            "insert into e values (3, 'a', 'x', 9); update p set note = 'b'; update only p set note = 'c';"
            "delete from p; truncate only d; truncate p",
        ),
        (
            insert("p", "1", {"id": 1, "note": "a"}),
            insert("c", "", {"id": 1, "note": "a", "extra": "x"}),
            insert("d", "2", {"id": 2, "note": "a", "extra": "x"}),
            insert("e", "", {"id": 3, "note": "a", "extra": "x", "x": 9}),
            update("p", "1", {"id": 1, "note": "b"}),
            update("d", "2", {"id": 2, "note": "b", "extra": "x"}),
            update("p", "1", {"id": 1, "note": "c"}),
            delete("p", "1", {"id": 1}),
            delete("d", "2", {"id": 2}),
            truncate("d"),
            truncate("p"),
            truncate("c"),
            truncate("d"),
            truncate("e"),
        ),
        after="insert into p values (1, 'a'); insert into d values (2, 'a', 'x');"
        "insert into e values (3, 'a', 'x', 9); update p set note = 'b'; truncate only p;"
        "insert into p values (4, 'a')",
        follower=AtFollower("each by its own key", {"e": "differs"}),
    ),
)
