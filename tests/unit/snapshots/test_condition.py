"""What a condition may be, how it is written, and what is refused with which line."""

from __future__ import annotations

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import sql

from pipeline.errors import ConditionRefusedError, ConfigError
from pipeline.snapshots.conditions.condition import ColumnComparison, RowCondition, of_terms, parse

COLUMNS = ["id", "a", "b", "c", "t", "d", "j", "Odd name", 'q"uote', "per%cent", "position", "at", "select"]


@pytest.fixture(scope="module", autouse=True)
def grammar() -> None:
    """Read before anything has a deadline."""
    parse("id = 1", COLUMNS)


def written(text: str) -> str:
    """What is sent to the source."""
    return parse(text, COLUMNS).sql().as_string(None)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("ID=1 AND  not(A<>'x')", "id = 1 and not a <> 'x'"),
        ("(a or b) and c", "(a or b) and c"),
        ("a or (b and c)", "a or b and c"),
        ("a - (b - c) != -1", "a - (b - c) <> -1"),
        ("((((a))))", "a"),
        ("a = b is null", "a = b is null"),
        ("a = (b is null)", "a = (b is null)"),
        ("(a @> b) || c", "a @> b || c"),
        ("a @> (b || c)", "a @> (b || c)"),
        ("date '2024-01-01' <= d", "'2024-01-01'::date <= d"),
        ("CAST(a AS integer)=1", "a::int4 = 1"),
        ("a::char(3) = b::character varying", "a::bpchar(3) = b::varchar"),
        ('a::char = b::"char"', 'a::bpchar(1) = b::"char"'),
        ("a::timestamp(3) with time zone > now()", "a::timestamptz(3) > now()"),
        ("a::double precision[3] = '{}'", "a::float8[] = '{}'"),
        ("extract(epoch from d) > 1", "extract('epoch' from d) > 1"),
        ("pg_catalog.lower(a) LIKE 'x%'", "lower(a) like 'x%'"),
        ("trim(a) = left(b, 2)", "btrim(a) = left(b, 2)"),
        ("a isnull or b notnull", "a is null or b is not null"),
        ("a not in (1, -2) and b in ('x')", "a not in (1, -2) and b in ('x')"),
        ("position = 1 and at at time zone 'UTC' < d", "\"position\" = 1 and at at time zone 'UTC' < d"),
        ('"Odd name" = 1 and "q""uote" = 2 and "select" = 3', '"Odd name" = 1 and "q""uote" = 2 and "select" = 3'),
        ("- - a = -(-1) and (-a)[1] = 2", "- -a = - -1 and (-a)[1] = 2"),
        ("a=-1 and b*-2<.5e3", "a = -1 and b * -2 < .5e3"),
        ("case a when 1 then b else c end is not true", "case a when 1 then b else c end is not true"),
        ("a = any(array[1, 2]) or (a || b)[1] = 2", "a = any (array[1, 2]) or (a || b)[1] = 2"),
        ("make_interval(days => 2) < c", "make_interval(days => 2) < c"),
        ("j -> 'x' ->> 0 = 'y' and j ? 'k'", "j -> 'x' ->> 0 = 'y' and j ? 'k'"),
        ("coalesce(a, nullif(b, 0), greatest(c, 1)) is distinct from least(1, 2)",) * 2,
    ],
)
def test_what_is_understood(text: str, normal: str) -> None:
    condition = parse(text, COLUMNS)
    assert condition.text == normal
    assert parse(normal, COLUMNS) == condition


def test_a_condition_depends_on_neither_precedence_nor_search_path() -> None:
    assert written("id = 1 + 2 * 3 and lower(a) = 'x' or d::date is null") == (
        '(((("id" = (1 + (2 * 3))) and (pg_catalog."lower"("a") = \'x\')) or (("d"::pg_catalog."date") is null)))'
    )


def test_the_names_in_it_are_told() -> None:
    condition = parse("lower(a) = 'x' and extract(year from d::date) = 1 and id::int[] is null", COLUMNS)
    assert condition.columns == {"a", "d", "id"}
    assert condition.functions == {"lower", "extract"}
    assert condition.types == {"date", "int4"}


SUBQUERY = "no subquery"
NOT_THERE = "not expected there"
OWN = "only functions of Postgres itself"
ATTACKS = [
    ("true; drop table x", "; is not allowed"),
    ("true -- and false", "a comment (--) is not allowed"),
    ("true /* and false */", "a comment (/*) is not allowed"),
    ("a =-- 1\n 1", "a comment (--) is not allowed"),
    ("1=1) or (select true", NOT_THERE),
    ("a = 1) union select (2", NOT_THERE),
    ("(select true)", SUBQUERY),
    ("exists (select 1)", SUBQUERY),
    ("a = any(select id from other)", SUBQUERY),
    ("a in (select id from other)", SUBQUERY),
    ("a in (table other)", SUBQUERY),
    ("a in (values (1))", "values(…) is not allowed"),
    ("a = array(select 1)", NOT_THERE),
    ("lateral (select 1)", SUBQUERY),
    ("a = 1 union select 1", SUBQUERY),
    ("a = $$x$$", "$ is not allowed"),
    ("a = $tag$x$tag$", "$ is not allowed"),
    ("a = $1", "$ is not allowed"),
    ("a = %s", NOT_THERE),
    ("a = :name", ":name (character 5) is not allowed"),
    ("a = ?", NOT_THERE),
    (r"a = U&'\0061'", "U&'… is not allowed"),
    (r'U&"\0061" = 1', 'U&"… is not allowed'),
    (r"a = E'\' or true --'", "E'… is not allowed"),
    (r"a = e'\\'", "e'… is not allowed"),
    ("a = N'x'", "N'… is not allowed"),
    ("a = X'1F'", "X'… is not allowed"),
    ("a = B'1'", "B'… is not allowed"),
    ("a = 'x", "does not end"),
    ('"a = 1', "does not end"),
    ('"" = 1', "does not end, or is empty"),
    ("a = 'x' 'y'", NOT_THERE),
    ("a = 'x'\n'y'", NOT_THERE),
    ("public.evil(a)", OWN),
    ('"public"."evil"(a)', OWN),
    ("dblink.dblink_exec('x')", OWN),
    ("other.a = 1", "write columns and types by their names alone"),
    ("public.other.a = 1", "write columns and types by their names alone"),
    ("a::public.evil = 1", "write columns and types by their names alone"),
    ("(j).field = 1", "by their names alone"),
    ("other = 1", "no column other"),
    ("ctid = '(0,1)'", "no column ctid"),
    ("select = 1", SUBQUERY),
    ("user = 'x'", "is a word that no condition has"),
    ("current_user = 'x'", "is a word that no condition has"),
    ("a operator(public.=) 1", "operator (character 3) is not allowed"),
    ("a operator(pg_catalog.=) 1", "operator (character 3) is not allowed"),
    ("a @@@ 'x'", "the operator @@@ is not allowed"),
    ("a <-> b < 1", "the operator <-> is not allowed"),
    ("a == 1", "the operator == is not allowed"),
    ("@ a = 1", "the operator @ is not allowed"),
    ("(a, b) = (1, 2)", "a row of values is no condition"),
    ("row(a, b) = row(1, 2)", "row(…) is not allowed"),
    ("row(a)", "row(…) is not allowed"),
    ("count(*) > 1", NOT_THERE),
    ("* = 1", NOT_THERE),
    ("sum(a) over () > 1", NOT_THERE),
    ("sum(a) filter (where true) > 1", NOT_THERE),
    ("count(distinct a) > 1", NOT_THERE),
    ("f(a order by b)", "is a word that no condition has"),
    ("concat(variadic array[a])", "is a word that no condition has"),
    ("a collate \"C\" = 'x'", "is a word that no condition has"),
    ("xmlparse(content 'x') is null", "xmlparse(…) is not allowed"),
    ("json_value(j, '$') = 'x'", "json_value(…) is not allowed"),
    ("position('a' in b) = 1", NOT_THERE),
    ("int(a) = 1", "int(…) is not allowed"),
    ("lower(a from b) = 1", "put commas between arguments"),
    ("a = 1_000", "the number at 1_000 is not allowed"),
    ("a = 0x1F", "the number at 0x1F is not allowed"),
    ("a = 1.2.3", "the number at 1.2.3 is not allowed"),
    ("a = 1a", "the number at 1a is not allowed"),
    ("a < b < c", NOT_THERE),
    ("a = b = c", NOT_THERE),
    ("a::text with time zone = 'x'", "only time and timestamp have a time zone"),
    ("a = 'x' limit 1", "is a word that no condition has"),
    ("a = 1 for update", "is a word that no condition has"),
    ("a := 1", ":= 1 (character 3) is not allowed"),
    ("{{ a }}", "{{ a }} (character 1) is not allowed"),
    ("a = 1 \\gexec", "is not allowed"),
    ("", "it is empty"),
    ("  \n ", "it is empty"),
    ("a =", "it ends too early"),
    ("a and", "it ends too early"),
    ("(a", "it ends too early"),
    ("a = '\0'", "a NUL or half a character"),
    ("a = '\ud800'", "a NUL or half a character"),
    ("a\u00a0= 1", "no column a"),  # a letter to Postgres
    ("a = \u2018x\u2019", "no column"),
]


@pytest.mark.parametrize(("text", "line"), ATTACKS)
def test_what_is_refused(text: str, line: str) -> None:
    with pytest.raises(ConditionRefusedError) as refused:
        parse(text, COLUMNS)
    said = str(refused.value)
    assert said.startswith("--where: ")
    assert line in said
    assert "\n" not in said
    assert len(said) < 250


def test_a_refusal_is_a_wrong_argument() -> None:
    assert issubclass(ConditionRefusedError, ConfigError)
    assert ConditionRefusedError.exit_code == 2


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5000 + "a" + ")" * 4999,
        "(" * 101 + "a" + ")" * 101,
        "not " * 2400 + "a",
        "-" + " - " * 2000 + "a",
        "case when " * 900 + "a",
        "f(" * 3000,
        "a[" * 3000,
        "a" + "[1]" * 3000,
        "a" + "::int" * 1900,
        "a" + " + 1" * 2000,
        "a" + " is null" * 1000,
        "array[" * 1500,
    ],
)
def test_what_is_nested_too_deeply_is_refused_plainly(text: str) -> None:
    with pytest.raises(ConditionRefusedError, match="deeper than 100 levels"):
        parse(text, COLUMNS)


def test_what_is_long_and_flat_is_no_nesting() -> None:
    text = " or ".join(["id = 1"] * 900)
    assert parse(text, COLUMNS).text == text
    text = f"id in ({', '.join(['1'] * 3000)})"
    assert parse(text, COLUMNS).text == text
    assert parse("(" * 100 + "a" + ")" * 100, COLUMNS).text == "a"
    for text in (
        "lower(" * 99 + "a" + ")" * 99,
        "a" + " + 1" * 100,
        "- " * 99 + "-a",
        "(a in (1, " * 50 + "a" + "))" * 50,
    ):
        assert parse(parse(text, COLUMNS).text, COLUMNS) == parse(text, COLUMNS)
    text = "- " * 40 + "(a ~ lower(" * 20 + "a" + "))" * 20  # each sign in brackets would be too much
    assert parse(parse(text, COLUMNS).text, COLUMNS) == parse(text, COLUMNS)


def test_what_is_too_long_is_refused_as_given_and_as_stored() -> None:
    with pytest.raises(ConditionRefusedError, match="it has 10,001 characters, allowed are 10,000"):
        parse("a = '" + "x" * 9_995 + "'", COLUMNS)
    assert parse("a = '" + "x" * 9_994 + "'", COLUMNS)
    with pytest.raises(ConditionRefusedError, match="allowed are 10,000"):
        parse("a=1 or " * 1400 + "b", COLUMNS)


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
AWKWARD = st.sampled_from(
    ["'", "''", "\\", "\\'", "%", "%s", "%%", "\n", "é", "🙂", "$$", "--", "/*", '"', "{}", "{a}"]
)
STRINGS = st.lists(TEXTS | AWKWARD, max_size=6).map("".join)


@given(STRINGS)
def test_a_string_stays_what_it_is(value: str) -> None:
    quoted = "'" + value.replace("'", "''") + "'"
    condition = parse(f"a = {quoted}", COLUMNS)
    assert condition.text == f"a = {quoted}"
    assert condition == of_terms([ColumnComparison("a", "=", value)], COLUMNS)
    assert "%" not in condition.sql().as_string(None)


@given(STRINGS)
def test_no_text_makes_anything_but_a_condition_or_a_plain_refusal(text: str) -> None:
    try:
        condition = parse(text, COLUMNS)
    except ConditionRefusedError as refused:
        assert str(refused).splitlines() == [str(refused)]
    else:
        assert parse(condition.text, COLUMNS) == condition


WORDS = [
    *(
        "id",
        "a",
        "t",
        '"Odd name"',
        '"per%cent"',
        "1",
        "'x%\\'",
        "null",
        "true",
        "now()",
        "lower(t)",
        "date '2024-01-01'",
    ),
    *("and", "or", "not", "=", "<>", "<", "+", "-", "*", "%", "^", "||", "->", "@>", "is null", "is not true", "::int"),
    *(
        "in (1, 2)",
        "not in (a)",
        "between",
        "like",
        "not ilike",
        "is distinct from",
        "(",
        ")",
        "= any(",
        "at time zone",
    ),
    *(
        "case when",
        "then",
        "else",
        "end",
        "[1]",
        "::text",
        "::numeric(3, 1)",
        "::char",
        "array[",
        "]",
        ",",
        "escape ''",
    ),
]


@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join))
def test_what_is_stored_is_understood_again(text: str) -> None:
    try:
        condition = parse(text, COLUMNS)
    except ConditionRefusedError:
        return
    assert parse(condition.text, COLUMNS) == condition


def test_a_percent_sign_cannot_become_a_placeholder() -> None:
    condition = parse("\"per%cent\" % 2 = 1 and a like 'x%s%%' and \"per%cent\"::text = '\\'", COLUMNS)
    query = sql.SQL("select 1 where {} and %s").format(condition.sql())
    text = query.as_string(None)
    assert text.count("%") == 1
    assert "E'x\\045s\\045\\045'" in text
    assert 'U&"per\\0025cent"' in text
    assert "E'\\\\'" in text


@pytest.mark.parametrize(
    ("term", "text"),
    [
        (ColumnComparison("id", "=", 5), "id = '5'"),
        (ColumnComparison("id", "!=", -1.5), "id <> '-1.5'"),
        (ColumnComparison("a", "<>", True), "a <> 'true'"),
        (ColumnComparison("a", ">=", "it's"), "a >= 'it''s'"),
        (ColumnComparison("Odd name", "in", [1, "x", False]), "\"Odd name\" in ('1', 'x', 'false')"),
        (ColumnComparison("a", "NOT  IN", ["x"]), "a not in ('x')"),
        (ColumnComparison("a", "ilike", "x%"), "a ilike 'x%'"),
        (ColumnComparison("a", "is null"), "a is null"),
        (ColumnComparison("a", "IS NOT NULL"), "a is not null"),
    ],
)
def test_terms(term: ColumnComparison, text: str) -> None:
    condition = of_terms([term], COLUMNS)
    assert condition.text == text
    assert condition.columns == {term.column}
    assert parse(text, COLUMNS) == condition


def test_all_terms_have_to_be_true() -> None:
    condition = of_terms(
        [ColumnComparison("id", ">", 1), ColumnComparison("a", "is null"), ColumnComparison("b", "like", "x")], COLUMNS
    )
    assert condition.text == "id > '1' and a is null and b like 'x'"
    many: list[ColumnComparison] = [ColumnComparison("id", "<>", number) for number in range(500)]
    assert parse(of_terms(many, COLUMNS).text, COLUMNS) == of_terms(many, COLUMNS)


@pytest.mark.parametrize(
    ("terms", "line"),
    [
        ([], "it has no terms"),
        ([ColumnComparison("other", "=", 1)], "the table has no column other"),
        ([ColumnComparison("a; drop table x", "=", 1)], "the table has no column"),
        ([ColumnComparison("a", "~", "x")], "the operator ~ is not allowed: use one of ="),
        ([ColumnComparison("a", "= 1 or a =", "x")], "the operator = 1 or a = is not allowed"),
        ([ColumnComparison("a", "=", None)], "takes no null"),
        ([ColumnComparison("a", "in", ["x", None])], "takes no null"),  # type: ignore[list-item]
        ([ColumnComparison("a", "in", [])], "a list of at least one"),
        ([ColumnComparison("a", "in", "x")], "a list of at least one"),
        ([ColumnComparison("a", "in", [["x"]])], "takes one value"),  # type: ignore[list-item]
        ([ColumnComparison("a", "=", ["x"])], "takes one value"),
        ([ColumnComparison("a", "=", {"x": 1})], "takes one value"),  # type: ignore[arg-type]
        ([ColumnComparison("a", "is null", 1)], "takes no value"),
        ([ColumnComparison("a", "=", "x\0")], "a NUL or half a character"),
        ([ColumnComparison("a", "=", "x" * 10_000)], "allowed are 10,000"),
        ([ColumnComparison("a", "=", 10**9000)], "is too long"),
        ([ColumnComparison("a", "=", 1)] * 100_000, "are too many"),
    ],
)
def test_terms_that_are_refused(terms: list[ColumnComparison], line: str) -> None:
    with pytest.raises(ConditionRefusedError, match=r"^condition: ") as refused:
        of_terms(terms, COLUMNS)
    assert line in str(refused.value)


def test_a_condition_is_a_value() -> None:
    assert hash(parse("a = 1", COLUMNS)) == hash(parse("(a)=1", COLUMNS))
    assert isinstance(parse("a = 1", COLUMNS), RowCondition)
    assert isinstance(parse("a = 1", COLUMNS).sql(), psycopg.sql.Composable)
