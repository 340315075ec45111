"""Values of keys are compared by functions of Postgres itself or of an extension's type, never by an owner's."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from psycopg import sql

from pipeline.errors import NotComparableError
from pipeline.postgres import connections, key_comparison, session_settings
from pipeline.postgres.connections import Connection
from tests.fixtures.postgres import Cluster

OWN = """
create schema app; create schema ext;
create function app.ran(value text) returns boolean language plpgsql as
    $$ begin raise exception 'code of the owner ran: %', value; end $$;
create function app.safe(value text) returns boolean language plpgsql as
    $$ begin if current_setting('app.armed', true) = 'yes' then return app.ran(value); end if; return true; end $$;
create type app.color as enum ('red', 'green', 'blue');
create domain app.number as int check (app.safe(value::text));
create domain app.twice as app.number;
create domain app.word as varchar(9) check (app.safe(value));
create domain app.paint as app.color check (app.safe(value::text));
create domain app.list as int[] check (app.safe(value::text));
create domain app.lists as app.color[];
create type app.pair as (a int, b int);
create type app.span as range (subtype = int);
create domain app.pairs as app.pair;
create function app.sums(app.number[]) returns int[] language sql as $$ select array[app.ran('cast')::int] $$;
create cast (app.number[] as int[]) with function app.sums(app.number[]) as implicit;
create function app.colors(text) returns app.color[] language sql as
    $$ select array[app.ran('cast')::text::app.color] $$;
create cast (text as app.color[]) with function app.colors(text);
create function app.before(int, int) returns boolean language sql as $$ select app.ran('operator') $$;
create operator app.< (leftarg = int, rightarg = int, function = app.before);
create operator app.= (leftarg = int, rightarg = int, function = app.before)
"""
COMPARED = {
    "int": ("1", "2", "30"),
    "text": ("a", "b'\\", "c"),
    "char(3)": ("a", "ab", "abc"),
    "bit(2)": ("00", "01", "10"),
    '"char"': ("a", "b", "c"),
    "int4range": ("[1,3)", "[2,3)", "[3,4)"),
    "int[]": ("{1,2}", "{2,1}", "{30}"),
    "app.color": ("red", "green", "blue"),
    "app.color[]": ("{red,blue}", "{green}", "{blue}"),
    "app.number": ("1", "2", "30"),
    "app.number[]": ("{1,2}", "{2,1}", "{30}"),
    "app.twice": ("1", "2", "30"),
    "app.word": ("a", "b", "c"),
    "app.paint": ("red", "green", "blue"),
    "app.list": ("{1,2}", "{2,1}", "{30}"),
    "app.lists": ("{red}", "{green,red}", "{blue}"),
}
"""Types, each with values in their order."""
REFUSED = {
    "app.pair": "composite",
    "app.span": "a range",
    "app.pairs": "composite",
    "app.list[]": "array of arrays",
    "app.paint[]": "array of a domain over another type",
}


@pytest.fixture(scope="module")
def session(any_cluster: Cluster) -> Iterator[Connection]:
    with (
        any_cluster.database("keys") as dsn,
        connections.connect(dsn, "source", settings=session_settings.SERVER, prepare_threshold=None) as connection,
    ):
        connection.execute(OWN)
        yield connection


def _text(text: str) -> sql.SQL:
    return sql.SQL(text)


def made(session: Connection, *types: str) -> tuple[int, list[str]]:
    """An empty table with a key of such columns."""
    names = [f"k{place}" for place in range(len(types))]
    columns = ", ".join(f"{name} {kind}" for name, kind in zip(names, types, strict=True))
    session.execute(b"reset search_path; drop table if exists app.t")
    session.execute(f"create table app.t ({columns}, primary key ({', '.join(names)}))".encode())
    found = session.execute("select 'app.t'::regclass::oid::bigint").fetchone()
    assert found is not None
    return found[0], names


def compared(session: Connection, *types: str, keys: list[tuple[str, ...]]) -> None:
    """Compare each of these keys, given in order, in each way with all of them."""
    relation, names = made(session, *types)
    for key in keys:
        session.execute(f"insert into app.t values ({', '.join(['%s'] * len(names))})".encode(), key)
    session.execute("set search_path = ''; set app.armed = 'yes'")
    try:
        with key_comparison.no_ambiguity():
            comparison = key_comparison.read_comparison(session, relation, names)
            texts = ", ".join(f"concat(t.{name})" for name in names)

            def found(where: sql.Composable) -> list[tuple[str, ...]]:
                query = _text(f"select {texts} from app.t t where {{}} order by {{}}")
                return session.execute(query.format(where, comparison.order())).fetchall()

            printed = found(sql.SQL("true"))
            for place, each in enumerate(keys):
                assert found(comparison.bounded(">", each)) == printed[place + 1 :]
                assert found(comparison.bounded("<=", each)) == printed[: place + 1]
                assert found(comparison.is_one_of([each])) == [printed[place]]
            assert found(comparison.is_one_of(keys)) == printed
            assert found(comparison.is_one_of([])) == []
    finally:
        session.execute("reset app.armed")


@pytest.mark.parametrize("kind", COMPARED)
def test_no_code_of_an_owner_runs_to_compare_a_key(session: Connection, kind: str):
    values = COMPARED[kind]
    compared(session, kind, keys=[(value,) for value in values])
    compared(session, kind, "int", keys=[(value, number) for value in values for number in ("8", "9")])


@pytest.mark.parametrize(("kind", "value"), [("app.pair", "(1,2)"), ("app.span", "[1,2)"), ("app.pairs", "(1,2)")])
def test_a_key_of_any_type_is_found_by_its_text(session: Connection, kind: str, value: str):
    relation, names = made(session, "int", kind)
    session.execute("insert into app.t values (1, %s), (2, %s)", (value, value))
    comparison = key_comparison.read_comparison(session, relation, names, by_text=True)
    query = _text("select t.k0 from app.t t where {}").format(comparison.is_one_of([("2", value), ("3", value)]))
    assert session.execute(query).fetchall() == [(2,)]


@pytest.mark.parametrize("kind", REFUSED)
def test_a_key_whose_comparing_may_run_code_of_an_owner_is_refused(session: Connection, kind: str):
    relation, names = made(session, "int", kind)
    with pytest.raises(NotComparableError, match=rf"key column k1 .*{REFUSED[kind]}"):
        key_comparison.read_comparison(session, relation, names)


def test_a_cast_that_makes_a_comparison_ambiguous_refuses_the_table(session: Connection):
    session.execute("create type app.size as enum ('s', 'm')")
    session.execute("create function app.of(app.size) returns text language sql as $$ select app.ran('cast')::text $$")
    session.execute("create cast (app.size as text) with function app.of(app.size) as implicit")
    with pytest.raises(NotComparableError, match="drop that cast"):
        compared(session, "app.size", keys=[("s",)])


def test_a_key_column_that_is_gone_is_refused(session: Connection):
    relation, names = made(session, "int")
    with pytest.raises(NotComparableError, match="altered just now"):
        key_comparison.read_comparison(session, relation, [*names, "k9"])


def test_a_type_of_an_extension_is_compared_by_its_own_operators(clusters: Callable[[int], Cluster]):
    with (
        clusters(15).database("keys") as dsn,
        connections.connect(dsn, "source", settings=session_settings.SERVER, prepare_threshold=None) as session,
    ):
        session.execute(OWN)
        session.execute("create extension citext schema ext")
        values = ("A", "b", "C")
        compared(session, "ext.citext", keys=[(value,) for value in values])
        compared(session, "ext.citext[]", keys=[(f"{{{value}}}",) for value in values])
        compared(session, "ext.citext", "int", keys=[(value, number) for value in values for number in ("8", "9")])
        compared(session, "int", "ext.citext", "app.color", keys=[("1", each, "red") for each in values])
        relation, names = made(session, "ext.citext")
        key = key_comparison.read_comparison(session, relation, names)
        found = session.execute(_text("select {}").format(key.columns[0].literal("B")))
        assert found.fetchone() == ("B",)
        assert "operator(ext.<=)" in key.bounded("<=", ["b"]).as_string(session)
