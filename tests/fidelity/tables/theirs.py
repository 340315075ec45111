"""Publications that users made beforehand, taken as they are."""

from __future__ import annotations

from tests.fidelity.tables.case import AtFollower, Kind, delete, insert, truncate, update

CASES = (
    Kind(
        "row filter",
        "rows that pass; an update that enters the filter is an insert, one that leaves it a delete",
        "create table t (id int primary key, shown bool, note text); alter table t replica identity full;"
        "alter publication listed add table t where (shown)",
        (
            "insert into t values (1, true, 'a'), (2, false, 'a'); update t set note = 'b';"
            "update t set shown = not shown; delete from t; truncate t",
        ),
        (
            insert("t", "1", {"id": 1, "shown": True, "note": "a"}),
            update("t", "1", {"id": 1, "shown": True, "note": "b"}, {"note": "a"}),
            delete("t", "1", {"id": 1, "shown": True, "note": "b"}),
            insert("t", "2", {"id": 2, "shown": True, "note": "b"}),
            delete("t", "2", {"id": 2, "shown": True, "note": "b"}),
            truncate("t"),
        ),
        publication="listed",
        after="insert into t values (1, true, 'a'), (2, false, 'b'), (3, false, 'c'); "
        "update t set shown = true where id = 2",
        follower=AtFollower("the rows that pass", {"t": "equal"}),
    ),
    Kind(
        "row filter on the key",
        "the same, without replica identity full",
        "create table t (id int primary key, big text); alter table t alter big set storage external;"
        "alter publication listed add table t where (id > 10)",
        (
            "insert into t values (1, repeat('x', 3000)), (12, 'b'); update t set id = id + 10 where id = 1;"
            "update t set big = 'c' where id = 11; update t set id = 2 where id = 11",
        ),
        (
            insert("t", "12", {"id": 12, "big": "b"}),
            insert("t", "11", {"id": 11}, unchanged=("big",)),
            update("t", "11", {"id": 11, "big": "c"}),
            delete("t", "11", {"id": 11}),
        ),
        publication="listed",
        after="insert into t values (13, 'b')",
        follower=AtFollower("the rows that pass", {"t": "equal"}),
    ),
    Kind(
        "column list",
        "these columns; an update of only other columns is an event, too",
        "create table t (id int primary key, secret text, note text, other int);"
        "alter publication listed add table t (note, id)",
        (
            "insert into t values (1, 's', 'a', 5); update t set secret = 'z';"
            "update t set note = 'b', id = 2; delete from t",
        ),
        (
            insert("t", "1", {"id": 1, "note": "a"}),
            update("t", "1", {"id": 1, "note": "a"}),
            update("t", "2", {"id": 2, "note": "b"}, {"id": 1}),
            delete("t", "2", {"id": 2}),
        ),
        publication="listed",
        after="insert into t values (1, 's', 'a', 5); update t set note = 'b'",
        follower=AtFollower("these columns; the others are null", {"t": "equal"}),
    ),
    Kind(
        "publication of one partition",
        "its rows, under the name of the root",
        "create table t (id int primary key, note text) partition by range (id);"
        "create table a partition of t for values from (1) to (10); create table b partition of t default;"
        "alter publication listed add table a",
        ("insert into t values (1, 'a'), (10, 'b'); update t set id = 11 where id = 1; truncate t",),
        (insert("t", "1", {"id": 1, "note": "a"}), delete("t", "1", {"id": 1}), truncate("a")),
        publication="listed",
        after="insert into t values (1, 'a'), (10, 'c')",
        follower=AtFollower("the rows of that partition", {"t": "equal"}),
    ),
    Kind(
        "publication of all tables in a schema",
        "everything in the schema, and later tables from their first row on",
        "create table t (id int primary key); alter publication by_schema add tables in schema {schema}",
        (
            "insert into t values (1); create table u (id int primary key); commit;"
            "insert into u values (2); update u set id = 3",
        ),
        (insert("t", "1", {"id": 1}), insert("u", "2", {"id": 2}), update("u", "3", {"id": 3}, {"id": 2})),
        publication="by_schema",
    ),
    Kind(
        "publication of all tables",
        "everything; but this publication makes updates of tables without a key fail",
        "create table t (id int primary key); create table k (id int); create unlogged table u (id int primary key)",
        (
            "insert into t values (1); insert into k values (1); insert into u values (1);"
            "update t set id = 2; truncate t, k",
        ),
        (
            insert("t", "1", {"id": 1}),
            insert("k", "", {"id": 1}),
            update("t", "2", {"id": 2}, {"id": 1}),
            truncate("t"),
            truncate("k"),
        ),
        publication="everything",
        after="insert into t values (1); insert into k values (1)",
        follower=AtFollower("equal, but for what writes no WAL", {"u": None}),
    ),
    Kind(
        "publication with generated columns",
        "everything, with these columns",
        "create table t (id int primary key, g int generated always as (id * 2) stored);"
        "alter publication by_schema add tables in schema {schema};"
        "alter publication by_schema set (publish_generated_columns = stored)",
        ("insert into t values (1); update t set id = 2; delete from t",),
        (
            insert("t", "1", {"id": 1, "g": 2}),
            update("t", "2", {"id": 2, "g": 4}, {"id": 1}),
            delete("t", "2", {"id": 2}),
        ),
        since=18,
        publication="by_schema",
        after="insert into t values (1); update t set id = 2",
    ),
    Kind(
        "publication through the root",
        "rows and truncates under the name of the root; Postgres never sends a truncate of one partition, "
        "and `check` says so",
        "create table t (id int primary key, note text) partition by range (id);"
        "create table a partition of t for values from (1) to (10); create table b partition of t default;"
        "alter publication through_root add table t",
        ("insert into t values (1, 'a'); update t set id = 11; truncate a; truncate t",),
        (
            insert("t", "1", {"id": 1, "note": "a"}),
            delete("t", "1", {"id": 1}),
            insert("t", "11", {"id": 11, "note": "a"}),
            truncate("t"),
        ),
        publication="through_root",
        after="insert into t values (1, 'a'), (12, 'b'); commit; truncate a",
        follower=AtFollower("equal, but for rows of a partition that was truncated alone", {"t": "differs"}),
    ),
)
