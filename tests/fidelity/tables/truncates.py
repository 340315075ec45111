"""TRUNCATE in its forms."""

from __future__ import annotations

from tests.fidelity.tables.case import AtFollower, Kind, insert, truncate

_ONE = {"id": 1}

CASES = (
    Kind(
        "truncate of several tables",
        "one event for each table, with or without a key; none for a table that is not published",
        "create table a (id int primary key); create table b (id int); create unlogged table c (id int primary key);"
        "create table d (id int primary key); alter table d replica identity full",
        ("insert into a values (1); insert into b values (1); truncate b, a, c, d",),
        (insert("a", "1", _ONE), insert("b", "", _ONE), truncate("b"), truncate("a"), truncate("d")),
        after="insert into a values (1); insert into b values (1); insert into c values (1); "
        "insert into d values (1); truncate b, c",
        follower=AtFollower("equal, but for what is not published", {"c": None}),
    ),
    Kind(
        "truncate cascade",
        "one event for each table that it empties",
        "create table a (id int primary key); create table b (id int primary key references a);"
        "create table c (b int references b)",
        ("truncate a cascade",),
        (truncate("a"), truncate("b"), truncate("c")),
        after="insert into a values (1), (2); insert into b values (1); insert into c values (1); truncate b cascade",
    ),
    Kind(
        "truncate restart identity",
        "one event; sequences are not replicated, but later rows have the new numbers",
        "create table t (id int generated always as identity primary key, note text)",
        ("insert into t (note) values ('a'); truncate t restart identity; insert into t (note) values ('b')",),
        (insert("t", "1", {"id": 1, "note": "a"}), truncate("t"), insert("t", "1", {"id": 1, "note": "b"})),
    ),
)
