"""Tables by what identifies their rows: primary key, index, the whole row, nothing."""

from __future__ import annotations

from tests.fidelity.tables.case import AtFollower, Kind, Stop, delete, insert, truncate, update

_WRITES = "insert into t values (1, 'a'); update t set note = 'b'; update t set id = 2; delete from t; truncate t"

CASES = (
    Kind(
        "primary key",
        "everything; if the key changes, `changes` has the old one; a delete has the key",
        "create table t (id int primary key, note text)",
        (_WRITES,),
        (
            insert("t", "1", {"id": 1, "note": "a"}),
            update("t", "1", {"id": 1, "note": "b"}),
            update("t", "2", {"id": 2, "note": "b"}, {"id": 1}),
            delete("t", "2", {"id": 2}),
            truncate("t"),
        ),
        after="insert into t values (1, 'a'), (2, 'b'); update t set note = 'c', id = 3 where id = 1",
    ),
    Kind(
        "replica identity full",
        "everything; `changes` has the old value of each changed column, a delete the complete row; "
        "`record_pk` is the primary key",
        "create table t (id int primary key, note text); alter table t replica identity full",
        (_WRITES,),
        (
            insert("t", "1", {"id": 1, "note": "a"}),
            update("t", "1", {"id": 1, "note": "b"}, {"note": "a"}),
            update("t", "2", {"id": 2, "note": "b"}, {"id": 1}),
            delete("t", "2", {"id": 2, "note": "b"}),
            truncate("t"),
        ),
        after="insert into t values (1, 'a'), (2, 'b'); update t set note = 'c', id = 3 where id = 1",
    ),
    Kind(
        "replica identity full, no primary key",
        "everything, with an empty `record_pk`",
        "create table t (id int, note text); alter table t replica identity full",
        ("insert into t values (1, null), (1, null); update t set note = 'a' where id = 1; delete from t",),
        (
            *[insert("t", "", {"id": 1, "note": None})] * 2,
            *[update("t", "", {"id": 1, "note": "a"}, {"note": None})] * 2,
            *[delete("t", "", {"id": 1, "note": "a"})] * 2,
        ),
        after="insert into t values (1, null), (1, null), (2, 'b'); update t set note = 'c' where id = 2",
    ),
    Kind(
        "replica identity using index",
        "everything; `record_pk` is the index's columns, not the primary key",
        "create table t (id int primary key, note text, b text not null, a int not null); "
        "create unique index by_both on t (a, b); alter table t replica identity using index by_both",
        ("insert into t values (1, 'x', 'b', 2); update t set id = 3; update t set a = 4; delete from t",),
        (
            insert("t", '["b",2]', {"id": 1, "note": "x", "b": "b", "a": 2}),
            update("t", '["b",2]', {"id": 3, "note": "x", "b": "b", "a": 2}),
            update("t", '["b",4]', {"id": 3, "note": "x", "b": "b", "a": 4}, {"a": 2}),
            delete("t", '["b",4]', {"b": "b", "a": 4}),
        ),
        after="insert into t values (1, 'x', 'b', 2), (2, 'x', 'c', 2); update t set a = 4 where b = 'c'",
    ),
    Kind(
        "no key",
        "inserts and truncates; updates and deletes work at the source, but are not captured",
        "create table t (id int, note text)",
        (_WRITES,),
        (insert("t", "", {"id": 1, "note": "a"}), truncate("t")),
        after="insert into t values (1, 'a'); update t set note = 'b'",
        follower=AtFollower("inserts and truncates", {"t": "differs"}),
    ),
    Kind(
        "replica identity nothing",
        "as with no key",
        "create table t (id int primary key, note text); alter table t replica identity nothing",
        (_WRITES,),
        (insert("t", "", {"id": 1, "note": "a"}), truncate("t")),
        after="insert into t values (1, 'a'); commit; delete from t; insert into t values (1, 'b')",
        follower=AtFollower(
            "inserts and truncates; it stops if a deleted key is written again",
            stops=(
                Stop(
                    "table public.t of the follower has a row with the key, or a unique value, of the one that seq N"
                    " writes: the table differs from the source's, so that transaction was not applied",
                    "`pipeline followers resync NAME public.t`",
                    resync=True,
                ),
            ),
        ),
    ),
    Kind(
        "deferrable primary key",
        "as with no key, because it identifies nothing; "
        "with replica identity full everything, also two keys that are exchanged",
        "create table t (id int primary key deferrable initially deferred, note text);"
        "create table f (like t, primary key (id) deferrable); alter table f replica identity full",
        (
            "insert into t values (1, 'a'), (2, 'b'); update t set id = 3 - id; delete from t",
            "insert into f values (1, 'a'), (2, 'b'); update f set id = 3 - id; delete from f where id = 1",
        ),
        (
            insert("t", "", {"id": 1, "note": "a"}),
            insert("t", "", {"id": 2, "note": "b"}),
            insert("f", "1", {"id": 1, "note": "a"}),
            insert("f", "2", {"id": 2, "note": "b"}),
            update("f", "2", {"id": 2, "note": "a"}, {"id": 1}),
            update("f", "1", {"id": 1, "note": "b"}, {"id": 2}),
            delete("f", "1", {"id": 1, "note": "b"}),
        ),
        follower=AtFollower(
            "inserts and truncates; with replica identity full equal",
            {"t": "differs"},
        ),
    ),
    Kind(
        "key that comes, goes and changes",
        "each change with the key of that time; without a key, inserts and truncates",
        "create table t (id int not null, code text not null unique)",
        (
            "insert into t values (1, 'a'); update t set code = 'b'; alter table t add primary key (id)",
            "update t set code = 'c'; alter table t replica identity full",
            "update t set code = 'd'; alter table t replica identity using index t_code_key",
            "update t set code = 'e'; alter table t replica identity default; alter table t drop constraint t_pkey",
            "update t set code = 'f'; insert into t values (2, 'g')",
        ),
        (
            insert("t", "", {"id": 1, "code": "a"}),
            update("t", "1", {"id": 1, "code": "c"}),
            update("t", "1", {"id": 1, "code": "d"}, {"code": "c"}),
            update("t", "e", {"id": 1, "code": "e"}, {"code": "d"}),
            insert("t", "", {"id": 2, "code": "g"}),
        ),
        follower=AtFollower("the changes that were made while it had a key", {"t": "differs"}),
    ),
)
