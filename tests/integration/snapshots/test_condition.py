"""Conditions at real sources: the rows are those of the user's own text, and what could do more is refused."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import psycopg
import pytest
from psycopg import sql

from pipeline.errors import ConditionRefusedError
from pipeline.postgres.queries import statement
from pipeline.snapshots.conditions import words as condition_words
from pipeline.snapshots.conditions.check import require_harmless
from pipeline.snapshots.conditions.condition import ColumnComparison, RowCondition, of_terms, parse
from tests.fixtures.postgres import Cluster

SETUP = r"""
create type mood as enum ('sad', 'fine');
create type pair as (x int, y text);
create domain short as text check (length(value) < 100);
create table items (
    id int primary key, big int8, n numeric(10, 2), f float8, t text, v varchar(9), c char(4), b bool, d date,
    at timestamptz, ts timestamp, i interval, j jsonb, js json, a int[], ta text[], u uuid, m mood, r int4range,
    "Odd ""name" int, "per%cent" int, position int, bits varbit, s short, ss short[], p pair
);
insert into items
select g, g * 1000000000::int8, g / 3.0, g / 7.0,
    (array['plain', 'it''s', 'back\slash', '100%', E'new\nline', 'Zürich 🙂', '', null, 'PLAIN', '%s'])[1 + g % 10],
    'v' || g, 'c' || g % 3, case g % 3 when 0 then true when 1 then false end, date '2024-01-01' + g,
    timestamptz '2024-01-01 00:00+00' + g * interval '5 hours', timestamp '2024-01-01' + g * interval '5 hours',
    g * interval '1 hour', jsonb_build_object('k', g, 'tags', jsonb_build_array(g % 4, 'x'), 's', 'v' || g % 5),
    json_build_object('k', g), array[g, g + 1], array['a' || g % 4, 'b'],
    (lpad(g::text, 8, '0') || '-0000-0000-0000-000000000000')::uuid, (array['sad', 'fine'])[1 + g % 2]::mood,
    int4range(g, g + 5), g, g, g, (g % 8)::bit(3)::varbit, 's' || g % 4, null, null
from generate_series(1, 60) g
"""
CONDITIONS = [
    "id = 5",
    "id in (1, 2, 99) or id between 10 and 12 and not id = 11",
    "ID NOT IN (1, 2) and id not between 5 and 50",
    "id between symmetric 9 and 3",
    "not b or b is null",
    "b is not true and b is distinct from false",
    "b is unknown or b is not distinct from true",
    "id = 3 is not true",
    "t = 'it''s'",
    r"t = 'back\slash'",
    r"t like '%\\%'",
    "t like '100!%' escape '!'",
    "t = '%s' or t = '100%'",
    "t = 'new\nline' or t = 'Zürich 🙂' or t = ''",
    "t ilike 'pl%' and t !~ 'a' or t ~* '^Z'",
    "t not like '%a%' or t like any (array['%s', 'it%'])",
    "lower(t) = 'plain' and upper(left(t, 1)) = 'P'",
    "coalesce(t, 'none') || '!' = 'none!'",
    "substring(t, 1, 2) = 'it' or trim(t) = '' or overlay(v, 'x', 1, 1) = 'x7'",
    "pg_catalog.length(t) > 5",
    "v = 'v7' or c = 'c1' or c::char = 'x' or v::varchar(2) = 'v1'",
    "n > 3.5 and n * 2 - 1 < 1e1",
    "n::int % 3 = 2 or id % 7 = -0",
    "-id + 10 > - 2 ^ 2 and f > .5",
    "2 ^ 3 ^ 2 > id and 100 / id / 2 > 3",
    "id - 1 - 1 = 3 or id - (1 - 1) = 7",
    "nullif(id % 2, 0) is null and greatest(id, 50) = 50 and least(big, 5) = 5",
    "case when id < 5 then 'low' when id < 9 then 'mid' else 'high' end = 'mid'",
    "case id % 3 when 0 then b when 1 then not b end",
    "d >= date '2024-01-20' and d < '2024-02-01'",
    "at > timestamp with time zone '2024-01-05 00:00+00' and at < timestamptz '2024-01-06 00:00+02'",
    "ts + interval '1 day 2 hours' < timestamp '2024-01-03 12:00'",
    "i > interval '1.5 days' and i < '2 days'::interval",
    "extract(hour from ts) = 5 or extract(day from d) in (3, 4)",
    "date_trunc('day', ts) = '2024-01-04' or date_part('dow', d) = 0",
    "at at time zone 'UTC' < '2024-01-04' and d < current_date and at < now() and ts < localtimestamp",
    "to_char(d, 'YYYY-MM-DD') = '2024-01-09' or ts::date - d = 0",
    "make_interval(hours => 7) = i or age(d, date '2024-01-01') = '3 days'",
    "j ->> 's' = 'v3' and (j -> 'k')::int > 10",
    "j -> 'tags' ->> 0 = '2' or j #>> '{tags,1}' = 'y'",
    "j @> '{\"k\": 5}' or j ? 'nothing' or j ?| array['zz', 'k'] and id = 2",
    "(j ->> 'k')::int = 9 or (js ->> 'k')::bigint = 10",
    "j @? '$.k ? (@ > 50)' or j['k'] = '4' or jsonb_typeof(j -> 'tags') = 'object'",
    "a @> array[7] or a[1] = 9 or 12 = any(a) or a && '{20,30}'",
    "ta = array['a1', 'b'] and 100 > all (a) and cardinality(ta) = 2",
    "(a || 5)[3] = 5 and id < 4 or a::text[] = '{7,8}'",
    "u = '00000007-0000-0000-0000-000000000000' or u::text like '00000008%'",
    "m = 'sad' and m <> 'fine' and m in ('sad') and r @> id and not r << '[30,40)'",
    '"Odd ""name" = 4 or "per%cent" % 5 = 2 or position = 3',
    "bits::bit(3) = '101' or length(bits) = 2",
    "s = 's2' or s::text like '%1'",
    "id & 6 = 2 or id # 1 = 4 or id << 2 = 8",
    "(id > 5) = (id < 9) and ((id)) > 1",
    "id isnull or t notnull and id < 8",
    "id::text || 'x' like '1%x' and id::smallint::real::double precision < 15",
    "starts_with(v, 'v1') and v ^@ 'v1' and md5(v) <> '' and round(n, 1) > 4",
    "format('%s-%%', id) = '7-%' or concat(id, 'a', null) = '8a' or replace(t, '%', '') = '100'",
    "to_tsvector('simple', t) @@ to_tsquery('simple', 'plain')",
    "regexp_replace(t, '(.)l', '\\1L') = 'pLain' or split_part(v, 'v', 2)::int = 4",
]


@pytest.fixture(scope="module")
def source(any_cluster: Cluster) -> Iterator[psycopg.Connection]:
    """A table of many types, and a session as one of those that read it."""
    with any_cluster.database("conditions") as dsn, psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(SETUP)
        yield connection


@pytest.fixture(autouse=True)
def as_a_reader(source: psycopg.Connection) -> None:
    source.execute("set search_path = ''")


def table_and_columns(source: psycopg.Connection, table: str = "items") -> tuple[int, list[str]]:
    """Its oid and the names of its columns."""
    rows = source.execute(
        "select attrelid, attname from pg_attribute where attrelid = %s::regclass and attnum > 0", [f"public.{table}"]
    ).fetchall()
    return rows[0][0], [name for _, name in rows]


def checked(source: psycopg.Connection, text: str, table: str = "items") -> RowCondition:
    """As a command does it."""
    oid, columns = table_and_columns(source, table)
    condition = parse(text, columns)
    require_harmless(source, condition, oid)
    return condition


def ids(source: psycopg.Connection, *conditions: RowCondition) -> list[list[int]]:
    """For each condition, with parameters and without, which must not matter."""
    plain = each_with(source, [condition.sql() for condition in conditions])
    with_one = [sql.SQL("{} and %s").format(condition.sql()) for condition in conditions]
    assert each_with(source, with_one, [True] * len(conditions)) == plain
    return plain


def own_ids(source: psycopg.Connection, texts: Sequence[str]) -> list[list[int]]:
    """What psql would show."""
    source.execute("set search_path = public")
    found = each_with(source, [sql.SQL(text) for text in texts])
    source.execute("set search_path = ''")
    return found


def each_with(
    source: psycopg.Connection, conditions: Sequence[sql.Composable], values: list[bool] | None = None
) -> list[list[int]]:
    """One query for all of them: thousands of small ones would take most of the time."""
    parts = [sql.SQL("array(select id from only public.items where {}\n order by id)").format(c) for c in conditions]
    return list(source.execute(sql.SQL("select {}").format(sql.SQL(", ").join(parts)), values).fetchall()[0])


def test_the_rows_are_those_of_the_users_own_text(source: psycopg.Connection) -> None:
    conditions = [checked(source, text) for text in CONDITIONS]
    rows = zip(
        CONDITIONS,
        ids(source, *conditions),
        own_ids(source, CONDITIONS),
        own_ids(source, [condition.text for condition in conditions]),
        strict=True,
    )
    for text, found, own, again in rows:
        assert found == own == again, text
        assert 0 < len(found) < 60, text


def test_a_session_that_reads_backslashes_otherwise_gets_the_same_rows(source: psycopg.Connection) -> None:
    source.execute("set standard_conforming_strings = off")
    try:
        for value in ("back\\slash", "100%", "it's", "\\' or true or t = \\'"):
            condition = of_terms(
                [ColumnComparison("t", "=", value), ColumnComparison("per%cent", ">", 0)], table_and_columns(source)[1]
            )
            rows = source.execute(sql.SQL("select distinct t from public.items where {}").format(condition.sql()))
            assert rows.fetchall() == ([(value,)] if "or" not in value else [])
    finally:
        source.execute("set standard_conforming_strings = on")


def test_terms_take_the_types_of_their_columns(source: psycopg.Connection) -> None:
    oid, columns = table_and_columns(source)
    for term, expected in (
        (ColumnComparison("id", "=", 5), [5]),
        (ColumnComparison("n", "<", 0.5), [1]),
        (ColumnComparison("d", "<=", "2024-01-03"), [1, 2]),
        (ColumnComparison("b", "=", True), list(range(3, 61, 3))),
        (ColumnComparison("m", "in", ["sad"]), list(range(2, 61, 2))),
        (ColumnComparison("t", "like", "100%"), [3, 13, 23, 33, 43, 53]),
        (ColumnComparison("t", "is null"), [7, 17, 27, 37, 47, 57]),
        (ColumnComparison("big", "not in", list(range(10**9, 60 * 10**9, 10**9))), [60]),
    ):
        condition = of_terms([term], columns)
        require_harmless(source, condition, oid)
        assert ids(source, condition) == [expected]


OPERANDS = (
    "id",
    "position",
    "1",
    "2",
    "n",
    "b",
    "true",
    "null",
    "'3'",
    "v",
    "'v1'",
    "a",
    "j",
    "id::text",
    "-id",
    "a[1]",
)
OPERATORS = (
    *(
        "+",
        "-",
        "*",
        "/",
        "%",
        "^",
        "||",
        "=",
        "<>",
        "<",
        ">=",
        "and",
        "or",
        "and not",
        "or not",
        "->>",
        "@>",
        "&",
        "#",
    ),
    *(
        "like",
        "not ilike",
        "is null and",
        "is not null =",
        "is distinct from",
        "in (1, 2) or",
        "between 1 and",
        "::int +",
    ),
    *("is true =", "notnull or", "= any (a) and", "~", "at time zone", "not in (3) =", "::text ||"),
)


def test_operators_have_the_order_of_postgres(source: psycopg.Connection) -> None:
    chance = random.Random(source.info.server_version)
    columns, same = table_and_columns(source)[1], 0
    for _ in range(500):
        text = chance.choice(("", "not ", "- ")) + chance.choice(OPERANDS)
        for _ in range(chance.randint(1, 4)):
            text += f" {chance.choice(OPERATORS)} {chance.choice(OPERANDS)}"
        try:
            condition = parse(text, columns)
        except ConditionRefusedError:
            continue
        ours, own = outcome(source, condition.sql()), outcome(source, sql.SQL(text))
        assert ours == own, text
        same += isinstance(own, list)
    assert same > 20


def outcome(source: psycopg.Connection, condition: sql.Composable) -> list[tuple[int]] | str | None:
    """The value for some rows, or the SQLSTATE."""
    query = sql.SQL("select ({})::text from public.items where id < 8 order by id").format(condition)
    try:
        return source.execute(query).fetchall()
    except psycopg.Error as error:
        return error.sqlstate


FUNCTIONS = """
    pg_logical_emit_message(true, 'p', 'x') is null;pg_terminate_backend(id);pg_cancel_backend(id);pg_sleep(1) is null
    "pg_sleep"(1) is null;pg_catalog.pg_sleep(1) is null;PG_SLEEP(1) is null;"pg_catalog"."pg_sleep"(1) is null
    set_config('a.b', 'c', false) = '';current_setting('data_directory') = '';nextval('s') = 1;setval('s', 1) = 1
    generate_series(1, 9) = 1;unnest(a) = 1;jsonb_array_elements(j) is null;random() < 1;clock_timestamp() > at
    gen_random_uuid() = u;sum(id) = 1;max(id) = 1;row_number() = 1;rank() = 1;string_agg(t, ',') = ''
    pg_read_file('x') = '';pg_ls_dir('.') = '';pg_stat_get_activity(1) is null;pg_advisory_lock(1) is null
    pg_try_advisory_lock(1);pg_reload_conf();pg_rotate_logfile();pg_switch_wal() is null;pg_notify('a', 'b') is null
    lo_import('x') = 1;lo_unlink(1) = 1;lo_get(1) is null;pg_create_restore_point('x') is null
    query_to_xml('select 1', true, true, '') is null;table_to_xml('items', true, true, '') is null
    schema_to_xml('public', true, true, '') is null;database_to_xml(true, true, '') is null
    cursor_to_xml('c', 1, true, true, '') is null;table_to_xmlschema('items', true, true, '') is null
    database_to_xml_and_xmlschema(true, true, '') is null;query_to_xmlschema('x', true, true, '') is null
    ts_stat('select 1') is null;ts_rewrite('a', 'select 1') is null;txid_current() = 1;pg_current_xact_id() is null
    domain_in('x', 1, 1) is null;record_in('x', 1, 1) is null;array_in('{x}', 1, 1) is null;textin('x') = ''
    pg_input_is_valid('x', 'public.short');pg_input_error_info('x', 'public.short') is null
    jsonb_populate_record(p, '{}') is null;json_populate_record(p, '{}') is null;json_to_record('{}') is null
    jsonb_populate_record_valid(p, '{}')
    pg_get_viewdef(1) = '';pg_get_indexdef(1) = '';pg_relation_size('items') = 1;pg_get_expr('x', 1) = ''
    satisfies_hash_partition(1, 2, 3, id);has_table_privilege('items', 'select');to_regclass('x') is null
    regclasssend('items') is null
    regclass('items') is null;dblink('x', 'y') = '';dblink_exec('x') = '';evil(t) = '';mood_text(m) = ''
    currval('s') = 1;lastval() = 1;inet_server_port() = 1;pg_stat_get_wal_receiver() is null;setseed(1) is null
    pg_replication_origin_create('x') = 1;pg_drop_replication_slot('x') is null;brin_summarize_new_values('x') = 1
    "coalesce"(t, '') = '';"lower "(t) = '';xmlexists2(t);pg_promote();pg_export_snapshot() = ''
"""


def split(texts: str) -> list[str]:
    return [text.strip() for line in texts.strip().splitlines() for text in line.split(";")]


def test_functions_that_do_more_than_compute_are_refused(source: psycopg.Connection) -> None:
    columns, asked = table_and_columns(source)[1], []
    for text in split(FUNCTIONS):
        try:
            asked.append((text, parse(text, columns).functions))
        except ConditionRefusedError as refused:
            assert_names_a_function(str(refused))
    names = sorted(set().union(*(functions for _, functions in asked)))
    query = statement("snapshots.conditions", "harmful_functions")
    harmful = {name for name, _ in source.execute(query, {"functions": names})}
    assert [text for text, functions in asked if harmful.isdisjoint(functions)] == []
    assert len(asked) > 60
    for text, _ in asked[::10]:  # one query has found them all; this is how a command says it
        with pytest.raises(ConditionRefusedError) as raised:
            checked(source, text)
        assert_names_a_function(str(raised.value))


def assert_names_a_function(said: str) -> None:
    assert said.startswith("--where: ")
    assert "() is " in said
    assert "immutable and stable functions of Postgres that read nothing but their arguments" in said


def test_casts_to_what_is_no_plain_type_of_postgres_are_refused(source: psycopg.Connection) -> None:
    for kind in split(
        "regclass;regproc;regtype;regrole;regnamespace;regconfig;_regclass;regclass[];mood;pair;short;items;nothing;cstring"
        ';record;pg_class;anyelement;trigger;pg_node_tree;aclitem;"integer"'
    ):
        with pytest.raises(
            ConditionRefusedError,
            match=r"^--where: a cast to \S+ is not allowed, because the type is not one of Postgres' own",
        ):
            checked(source, f"t::{kind} is null")


def test_a_function_that_somebody_put_beside_those_of_postgres_is_refused(source: psycopg.Connection) -> None:
    source.execute("create function pg_catalog.added(text) returns text immutable language sql as 'select $1'")
    source.execute("create function pg_catalog.lower(int) returns text immutable language sql as 'select $1::text'")
    try:
        for name in ("added", "lower"):
            with pytest.raises(ConditionRefusedError, match=rf"--where: {name}\(\) is not allowed"):
                checked(source, f"{name}(t) = 'x'")
    finally:
        source.execute("drop function pg_catalog.added(text); drop function pg_catalog.lower(int)")


EVIL = """
create table public.ran (what text);
create function public.ran(what text) returns bool language plpgsql as
    $$ begin insert into public.ran values (what); return true; end $$;
create domain public.checked as text check (public.ran('a domain'));
create type public.holder as (x public.checked);
create type public.feeling as enum ('x');
create function public.said(public.feeling) returns text language plpgsql as
    $$ begin perform public.ran('a cast'); return 'x'; end $$;
create cast (public.feeling as text) with function public.said (public.feeling) as implicit;
create type public.span as range (subtype = public.checked);
create table public.traps (
    id int, plain text, many public.checked[], whole public.holder, f public.feeling, fs public.feeling[],
    r public.span, sure public.checked, safe public.mood
);
insert into public.traps (id, f, fs, safe) values (1, 'x', '{x}', 'sad')
"""


def test_types_that_run_functions_of_their_owners_are_refused(source: psycopg.Connection) -> None:
    source.execute(EVIL)
    traps = {
        "many": "many = '{x}'",
        "whole": "array[whole] = '{(x)}'",
        "f": "f like 'x'",
        "fs": "fs::text[] = '{x}'",
        "r": "r = '[x,y]'",
    }
    _, columns = table_and_columns(source, "traps")
    for column, text in traps.items():
        query = sql.SQL("select from public.traps where {}").format(parse(text, columns).sql())
        source.execute(query)  # it does run them: that is why
        assert source.execute("delete from public.ran returning what").fetchall(), column
        with pytest.raises(ConditionRefusedError, match=f"^condition: {column} is not allowed, as its type .* may run"):
            checked(source, text, "traps")
    for text in ("sure = 'x'", "sure in ('x', 'y')", "coalesce(sure, 'x') = 'x'", "safe = 'sad'", "plain = 'x'"):
        source.execute(sql.SQL("select from public.traps where {}").format(checked(source, text, "traps").sql()))
        assert source.execute("select from public.ran").fetchall() == []


def test_a_column_that_is_gone_is_refused(source: psycopg.Connection) -> None:
    oid, _ = table_and_columns(source)
    for name in ("gone", "items", "ctid"):
        with pytest.raises(ConditionRefusedError, match=f"the table has no column {name}"):
            require_harmless(source, parse(f"{name} = 1", [name]), oid)


def test_a_session_that_could_find_operators_of_users_is_not_taken(source: psycopg.Connection) -> None:
    source.execute("set search_path = public")
    with pytest.raises(ValueError, match="search_path is empty"):
        checked(source, "id = 1")


def test_operators_of_users_are_not_found(source: psycopg.Connection) -> None:
    source.execute("create function public.never(int, int) returns bool language sql as 'select false'")
    source.execute("create operator public.= (leftarg = int, rightarg = int, function = public.never)")
    source.execute("create function pg_temp.lower(text) returns text language sql as 'select null'")
    source.execute("create domain pg_temp.text as pg_catalog.text check (false)")
    try:
        assert ids(source, checked(source, "id = 5 and lower(v)::text = 'v5'")) == [[5]]
    finally:
        source.execute("discard temp; drop operator public.= (int, int); drop function public.never(int, int)")


def test_no_operator_that_is_allowed_does_more_than_compute(source: psycopg.Connection) -> None:
    names = condition_words.COMPARISONS | condition_words.ADDITIONS | condition_words.PRODUCTS | {"^"}
    found = source.execute(
        "select o.oid::regoperator::text from pg_operator o join pg_proc p on p.oid = o.oprcode"
        " where o.oprname = any(%s) and o.oprnamespace = 'pg_catalog'::regnamespace and provolatile = 'v'",
        [sorted(names | condition_words.OTHER_OPERATORS)],
    ).fetchall()
    assert found == []


def test_the_words_are_those_of_postgres(source: psycopg.Connection) -> None:
    words: dict[str, set[str]] = {"R": set(), "T": set(), "C": set(), "U": set()}
    for word, code in source.execute("select word, catcode from pg_get_keywords()"):
        words[code].add(word)
    assert words["R"] <= condition_words.RESERVED
    assert words["T"] <= condition_words.ONLY_FUNCTIONS
    assert words["C"] <= condition_words.NO_FUNCTIONS
