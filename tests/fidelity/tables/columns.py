"""Tables by their columns: generated, identity, none."""

from __future__ import annotations

from tests.fidelity.tables.case import AtFollower, Kind, delete, insert, truncate, update

_STORED = "create table t (id int primary key, a int, g int generated always as (a * 2) stored)"
_GENERATED_KEY = "create table t (a int, g int generated always as (a * 2) stored primary key, note text)"
_FULL = "create table t (id int, a int, g int generated always as (a * 2) stored); alter table t replica identity full"

CASES = (
    Kind(
        "stored generated column, before 18",
        "all columns but this one, because Postgres does not send it",
        _STORED,
        ("insert into t values (1, 1); update t set a = 2; delete from t",),
        (insert("t", "1", {"id": 1, "a": 1}), update("t", "1", {"id": 1, "a": 2}), delete("t", "1", {"id": 1})),
        upto=17,
        after="insert into t values (1, 1); update t set a = 2",
    ),
    Kind(
        "stored generated column, from 18 on",
        "everything, because the server's publications have `publish_generated_columns = stored`",
        _STORED,
        ("insert into t values (1, 1); update t set a = 2; delete from t",),
        (
            insert("t", "1", {"id": 1, "a": 1, "g": 2}),
            update("t", "1", {"id": 1, "a": 2, "g": 4}),
            delete("t", "1", {"id": 1}),
        ),
        since=18,
        after="insert into t values (1, 1); update t set a = 2",
    ),
    Kind(
        "generated column in the key, before 18",
        "as with no key, because Postgres does not send it",
        _GENERATED_KEY,
        ("insert into t values (1, default, 'a'); update t set note = 'b'; delete from t",),
        (insert("t", "", {"a": 1, "note": "a"}),),
        upto=17,
        after="insert into t values (7, default, 'a'); update t set note = 'b'",
        follower=AtFollower("inserts and truncates", {"t": "differs"}),
    ),
    Kind(
        "generated column in the key, from 18 on",
        "everything",
        _GENERATED_KEY,
        ("insert into t values (1, default, 'a'); update t set a = 2; delete from t",),
        (
            insert("t", "2", {"a": 1, "g": 2, "note": "a"}),
            update("t", "4", {"a": 2, "g": 4, "note": "a"}, {"g": 2}),
            delete("t", "4", {"g": 4}),
        ),
        since=18,
        after="insert into t values (1, default, 'a'); update t set a = 3",
    ),
    Kind(
        "replica identity full with a stored generated column, before 18",
        "all columns but this one",
        _FULL,
        ("insert into t values (1, 1); update t set a = 2; delete from t",),
        (
            insert("t", "", {"id": 1, "a": 1}),
            update("t", "", {"id": 1, "a": 2}, {"a": 1}),
            delete("t", "", {"id": 1, "a": 2}),
        ),
        upto=17,
        after="insert into t values (1, 1); update t set a = 2",
    ),
    Kind(
        "replica identity full with a stored generated column, from 18 on",
        "everything",
        _FULL,
        ("insert into t values (1, 1); update t set a = 2; delete from t",),
        (
            insert("t", "", {"id": 1, "a": 1, "g": 2}),
            update("t", "", {"id": 1, "a": 2, "g": 4}, {"a": 1, "g": 2}),
            delete("t", "", {"id": 1, "a": 2, "g": 4}),
        ),
        since=18,
        after="insert into t values (1, 1); update t set a = 2",
    ),
    Kind(
        "virtual generated column",
        "all columns but this one, because Postgres never sends it; with replica identity full as with no key, "
        "because Postgres refuses to publish its updates",
        "create table t (id int primary key, a int, v int generated always as (a * 2) virtual);"
        "create table f (id int primary key, a int, v int generated always as (a * 2) virtual);"
        "alter table f replica identity full",
        (
            "insert into t values (1, 1); update t set a = 2; delete from t;"
            "insert into f values (1, 1); update f set a = 2; delete from f",
        ),
        (
            insert("t", "1", {"id": 1, "a": 1}),
            update("t", "1", {"id": 1, "a": 2}),
            delete("t", "1", {"id": 1}),
            insert("f", "1", {"id": 1, "a": 1}),
        ),
        since=18,
        after="insert into t values (1, 1); insert into f values (2, 1); update t set a = 3; update f set a = 3",
        follower=AtFollower("with replica identity full inserts and truncates, else equal", {"f": "differs"}),
    ),
    Kind(
        "generated column that comes and goes",
        "the columns that were published when a row was written; updates always work",
        "create table t (id int primary key, a int); alter table t replica identity full",
        (
            "insert into t values (1, 1)",
            "alter table t add g int generated always as (a * 2) stored; update t set a = 2",
            "alter table t alter g drop expression; update t set g = 7",
            "alter table t drop g; update t set a = 3",
        ),
        (
            insert("t", "1", {"id": 1, "a": 1}),
            update("t", "1", {"id": 1, "a": 2, "g": 4}, {"a": 1, "g": 2}),
            update("t", "1", {"id": 1, "a": 2, "g": 7}, {"g": 4}),
            update("t", "1", {"id": 1, "a": 3}, {"a": 2}),
        ),
        since=18,
    ),
    Kind(
        "no column at all",
        "an event with an empty record for each row",
        "create table t (); create table f (); alter table f replica identity full;"
        "create table d (gone int); alter table d drop column gone",
        ("insert into t default values; insert into f default values; delete from f; insert into d default values",),
        (insert("t", "", {}), insert("f", "", {}), delete("f", "", {}), insert("d", "", {})),
    ),
    Kind(
        "generated columns only, before 18",
        "an event with an empty record for each row",
        "create table t (g int generated always as (7) stored)",
        ("insert into t default values; truncate t; insert into t default values",),
        (insert("t", "", {}), truncate("t"), insert("t", "", {})),
        upto=17,
    ),
    Kind(
        "generated columns only, from 18 on",
        "everything that is stored",
        "create table t (g int generated always as (7) stored, v int generated always as (8))",
        ("insert into t default values",),
        (insert("t", "", {"g": 7}),),
        since=18,
    ),
    Kind(
        "identity and serial columns",
        "everything, with the numbers that Postgres assigned",
        "create table t (id bigint generated always as identity primary key, s serial, d int default 5, note text)",
        ("insert into t (note) values ('a'); update t set s = default; delete from t",),
        (
            insert("t", "1", {"id": 1, "s": 1, "d": 5, "note": "a"}),
            update("t", "1", {"id": 1, "s": 2, "d": 5, "note": "a"}),
            delete("t", "1", {"id": 1}),
        ),
        after="insert into t (note) values ('a'); update t set s = default",
    ),
)
