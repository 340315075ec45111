"""Tables by the columns of their key: of odd types, in another order, changed."""

from __future__ import annotations

from tests.fidelity.tables.case import AtFollower, Kind, delete, insert, update

_ODD = {
    "n": 1.10,
    "u": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    "at": "2024-02-29 12:00:00.000001+00",
    "c": "x",
    "p": '("a, ""b""",2)',
    "t": 'comma, "quote", \\ and žluťoučký 🐎',
    "b": "\\x00ff22",
    "f": "-0",
    "d": "7",
    "m": "so so",
    "i": "1 day -00:00:01",
    "r": "[1,5)",
    "l": '{1,"{}"}',
}
_ODD_KEY = (
    '[1.10,"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11","2024-02-29 12:00:00.000001+00","x","(\\"a, \\"\\"b\\"\\"\\",2)",'
    '"comma, \\"quote\\", '
    '\\\\ and žluťoučký 🐎","\\\\x00ff22","-0","7","so so","1 day -00:00:01","[1,5)","{1,\\"{}\\"}"]'
)
_ODD_TYPES = (
    "create type mood as enum ('so so'); create type pair as (a text, b int);"
    "create domain seven as int check (value > 6)"
)
_ODD_ROW = (
    "insert into t values (1.10, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '2024-02-29 13:00:00.000001+01', 'x',"
    """ ('a, "b"', 2), 'comma, "quote", \\ and žluťoučký 🐎', '\\x00ff22', '-0', 7, 'so so', '1 day -1 second',"""
    " '[1,4]', array['1', '{}'], 'a')"
)
_LONG, _NOTE = "k" * 1900, "a" * 200

CASES = (
    Kind(
        "composite key",
        "`record_pk` is a JSON array, in the table's order of columns, not the key's",
        "create table t (a text, note text, b int, c bool, primary key (c, b, a))",
        ("insert into t values ('x', 'n', 1, true); update t set b = 2; delete from t",),
        (
            insert("t", '["x",1,true]', {"a": "x", "note": "n", "b": 1, "c": True}),
            update("t", '["x",2,true]', {"a": "x", "note": "n", "b": 2, "c": True}, {"b": 1}),
            delete("t", '["x",2,true]', {"a": "x", "b": 2, "c": True}),
        ),
        after="insert into t values ('x', 'n', 1, true), ('y', 'n', 1, false); update t set b = 2 where c",
    ),
    Kind(
        "key of every sort of type",
        'everything: numeric, uuid, timestamptz, "char", composite, text, bytea, float -0, domain, enum, interval, '
        "range, array",
        f"{_ODD_TYPES};"
        'create table t (n numeric, u uuid, at timestamptz, c "char", p pair, t text, b bytea, f float8, '
        "d seven, m mood,"
        " i interval, r int4range, l text[], note text, primary key (n, u, at, c, p, t, b, f, d, m, i, r, l))",
        (f"{_ODD_ROW}; update t set note = 'b'; delete from t",),
        (
            insert("t", _ODD_KEY, {**_ODD, "note": "a"}),
            update("t", _ODD_KEY, {**_ODD, "note": "b"}),
            delete("t", _ODD_KEY, _ODD),
        ),
        after=f"{_ODD_ROW}; update t set f = 0",
        follower=AtFollower(
            "equal, once its types exist there: `--schema create` creates none",
            {"t": "refused, and it is equal"},
            prepared=_ODD_TYPES,
        ),
    ),
    Kind(
        "key of one column",
        "`record_pk` is its text as Postgres prints it",
        "create table b (k bytea primary key); create table f (k float8 primary key); "
        "create table n (k numeric primary key);"
        "create table j (k jsonb primary key); create table t (k text primary key); "
        "create table o (k bool primary key)",
        (
            "insert into b values ('\\x00ff'); insert into f values ('-0'), ('NaN'); "
            "insert into n values (1.10), ('NaN');"
            """insert into j values ('null'), ('{"a": 1.0}'); insert into t values (''), ('a "b", č'); """
            """insert into o values (true)""",
        ),
        (
            insert("b", "\\x00ff", {"k": "\\x00ff"}),
            insert("f", "-0", {"k": "-0"}),
            insert("f", "NaN", {"k": "NaN"}),
            insert("n", "1.10", {"k": 1.10}),
            insert("n", "NaN", {"k": "NaN"}),
            insert("j", "null", {"k": None}, exact={"k": "null"}),
            insert("j", '{"a": 1.0}', {"k": {"a": 1.0}}),
            insert("t", "", {"k": ""}),
            insert("t", 'a "b", č', {"k": 'a "b", č'}),
            insert("o", "t", {"k": True}),
        ),
    ),
    Kind(
        "key that changes back and forth",
        "each change of the key, in one transaction or in several",
        "create table t (id int primary key, note text); create table c (a int, b int, note text, primary key (a, b))",
        (
            "insert into t values (1, 'a'); update t set id = 2; update t set id = 1; update t set id = 1;"
            "insert into c values (1, 1, 'a'); update c set b = 2; update c set a = 2, b = 1; "
            "update c set a = b, b = a;"
            "delete from t; insert into t values (1, 'b')",
        ),
        (
            insert("t", "1", {"id": 1, "note": "a"}),
            update("t", "2", {"id": 2, "note": "a"}, {"id": 1}),
            update("t", "1", {"id": 1, "note": "a"}, {"id": 2}),
            update("t", "1", {"id": 1, "note": "a"}),
            insert("c", "[1,1]", {"a": 1, "b": 1, "note": "a"}),
            update("c", "[1,2]", {"a": 1, "b": 2, "note": "a"}, {"b": 1}),
            update("c", "[2,1]", {"a": 2, "b": 1, "note": "a"}, {"a": 1, "b": 2}),
            update("c", "[1,2]", {"a": 1, "b": 2, "note": "a"}, {"a": 2, "b": 1}),
            delete("t", "1", {"id": 1}),
            insert("t", "1", {"id": 1, "note": "b"}),
        ),
    ),
    Kind(
        "key that is out of line (TOAST)",
        "everything, because Postgres sends the key also if an update leaves it unchanged",
        "create table t (id text primary key, note text);"
        "alter table t alter id set storage external, alter note set storage plain;"
        "create table c (id text, n int, note text, primary key (id, n));"
        "alter table c alter id set storage external, alter note set storage plain;"
        "create table f (id text primary key, note text);"
        "alter table f alter id set storage external, alter note set storage plain;"
        "alter table f replica identity full",
        (
            "insert into t values (repeat('k', 1900), repeat('a', 200)); update t set note = 'b'; delete from t;"
            "insert into c values (repeat('k', 1900), 1, repeat('a', 200)); update c set note = 'b';"
            "update c set n = 2;"
            "insert into f values (repeat('k', 1900), repeat('a', 200)); update f set note = 'b'",
        ),
        (
            insert("t", _LONG, {"id": _LONG, "note": _NOTE}),
            update("t", _LONG, {"id": _LONG, "note": "b"}, {}),
            delete("t", _LONG, {"id": _LONG}),
            insert("c", f'["{_LONG}",1]', {"id": _LONG, "n": 1, "note": _NOTE}),
            update("c", f'["{_LONG}",1]', {"id": _LONG, "n": 1, "note": "b"}, {}),
            update("c", f'["{_LONG}",2]', {"id": _LONG, "n": 2, "note": "b"}, {"n": 1}),
            insert("f", _LONG, {"id": _LONG, "note": _NOTE}),
            update("f", _LONG, {"id": _LONG, "note": "b"}, {"note": _NOTE}),
        ),
    ),
)
