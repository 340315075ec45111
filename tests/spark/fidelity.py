"""Every kind of Postgres type with its hardest values, and what it is in Parquet: proved by test_types.py.

`python -m tests.spark.fidelity` writes the tables of docs/reference/parquet.md from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.fixtures.generated import DOCS, GeneratedPart

PART = GeneratedPart(DOCS / "reference/parquet.md", "tests/spark/fidelity.py")


@dataclass(frozen=True)
class Case:
    """A column type. `spark`: what it becomes; `values`: texts as Postgres takes them.

    `exact`: those of the values that are null in the column and whose text is in `exact`. `since`: major version of
    Postgres that has it.
    """

    type: str
    spark: str
    values: tuple[str, ...]
    exact: tuple[str, ...] = ()
    since: int = 15


SETUP = (
    "create type public.mood as enum ('sad', 'so so', 'Happy, \"very\"')",
    "create domain public.positive as integer check (value > 0)",
    "create domain public.email as text check (value like '%@%')",
    "create domain public.document as jsonb",
    "create type public.place as (street text, number integer, at timestamptz)",
)
_INFINITIES = ("infinity", "-infinity")
_YEARS = ("4713-01-01 00:00:00 BC", "0044-03-15 12:00:00 BC", "0001-01-01 00:00:00", "1500-02-28 23:59:59.999999")

NUMBERS = (
    Case("smallint", "int", ("-32768", "32767", "0")),
    Case("integer", "int", ("-2147483648", "2147483647", "0")),
    Case("bigint", "bigint", ("-9223372036854775808", "9223372036854775807", "9007199254740993")),
    Case("oid", "bigint", ("0", "4294967295")),
    Case("real", "float", ("-0", "3.4028235e+38", "1e-45", "1.1", "16777217", "NaN", "Infinity", "-Infinity")),
    Case("double precision", "double", ("-0", "1.7976931348623157e+308", "5e-324", "0.1", "NaN", *_INFINITIES)),
    Case("numeric(12,2)", "decimal(12,2)", ("-9999999999.99", "9999999999.99", "0.10", "NaN"), ("NaN",)),
    Case("numeric(38,10)", "decimal(38,10)", ("9999999999999999999999999999.9999999999", "-0.0000000001")),
    Case("numeric(38)", "decimal(38,0)", ("-99999999999999999999999999999999999999",)),
    Case("numeric(39,10)", "string", ("99999999999999999999999999999.0123456789", "NaN")),
    Case("numeric(5,-2)", "decimal(7,0)", ("9999900", "-149", "NaN"), ("NaN",)),
    Case("numeric(3,5)", "decimal(5,5)", ("0.00999", "-0.00001")),
    Case("numeric", "string", ("1.10", "1e40", "-0.00000000000000000000000000000000000000001", "NaN", *_INFINITIES)),
    Case("money", "string", ("-92233720368547758.08", "12.34")),
)
TIMES = (
    Case("date", "date", ("4713-01-01 BC", "0044-03-15 BC", "0001-01-01", "1500-02-28", "2024-02-29", "9999-12-31")),
    Case("date", "date", ("10000-01-01", "294276-12-31", "5874897-12-31", *_INFINITIES), _INFINITIES),
    Case("timestamp", "timestamp_ntz", (*_YEARS, "2024-02-29 12:34:56.000001", "9999-12-31 23:59:59.999999")),
    Case(
        "timestamp",
        "timestamp_ntz",
        ("294246-12-31 23:59:59.999999", "294247-01-01 00:00:00", "294276-12-31 23:59:59.999999", *_INFINITIES),
        ("294247-01-01 00:00:00", "294276-12-31 23:59:59.999999", *_INFINITIES),
    ),
    Case("timestamptz", "timestamp", tuple(f"{year}+00".replace(" BC+00", "+00 BC") for year in _YEARS)),
    Case("timestamptz", "timestamp", ("2024-02-29 12:34:56.000001+00", "9999-12-31 23:59:59.999999+00")),
    Case(
        "timestamptz",
        "timestamp",
        ("294246-12-31 23:59:59.999999+00", "294247-01-01 00:00:00+00", "294276-12-31 23:59:59+00", *_INFINITIES),
        ("294247-01-01 00:00:00+00", "294276-12-31 23:59:59+00", *_INFINITIES),
    ),
    Case("time", "string", ("00:00:00", "24:00:00", "23:59:59.999999")),
    Case("timetz", "string", ("00:00:00+15:59:59", "24:00:00-15:59:59")),
    Case("interval", "string", ("-178000000 years", "1 mon -1 day 00:00:00.000001", "0")),
    Case("interval", "string", ("infinity",), since=17),
)
TEXTS = (
    Case("text", "string", ("", " a ", "NULL", "quote \" and \\ and '", "ä€😀\n\ttab")),
    Case("varchar(5)", "string", ("abc  ", "")),
    Case("char(5)", "string", ("ab", "")),
    Case('"char"', "string", ("x", "")),
    Case("name", "string", ("pg_class",)),
    Case("bytea", "binary", ("", "\\x00ff", "\\xdeadbeef5c27")),
    Case("boolean", "boolean", ("true", "false")),
    Case("uuid", "string", ("00000000-0000-0000-0000-000000000000", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")),
    Case("bit(3)", "string", ("101",)),
    Case("bit varying", "string", ("", "0101")),
    Case("inet", "string", ("192.168.0.1/24", "::1")),
    Case("cidr", "string", ("10.0.0.0/8",)),
    Case("macaddr", "string", ("08:00:2b:01:02:03",)),
    Case("tsvector", "string", ("'a':1 'cat':2",)),
    Case("tsquery", "string", ("'a' & !'b'",)),
    Case("pg_lsn", "string", ("16/B374D848",)),
    Case("xid8", "string", ("18446744073709551615",)),
    Case("regtype", "string", ("integer",)),
    Case("int2vector", "string", ("1 2 3",)),
)
DOCUMENTS = (
    Case("json", "string", ('{"b": 1,  "a": 1e2, "a": 2}', "null", '"text"', '"\\u0000"', " [1 , 2 ] ", "1.10")),
    Case("jsonb", "string", ('{"b": 1, "a": {"c": null}}', "null", '"text"', "[1, 2]", "1.10", "true")),
    Case("public.document", "string", ('{"a": 1}', "null", '"text"')),
    Case("jsonpath", "string", ('$."a"[*]',)),
)
SHAPES = (
    Case("point", "string", ("(1.5,-2)", "(NaN,Infinity)")),
    Case("box", "string", ("(2,2),(1,1)",)),
    Case("path", "string", ("((0,0),(1,1))", "[(0,0),(1,1)]")),
    Case("circle", "string", ("<(1,2),3>",)),
)
OWN = (
    Case("public.mood", "string", ("sad", 'Happy, "very"')),
    Case("public.positive", "string", ("1", "2147483647")),
    Case("public.email", "string", ("a@b",)),
    Case("public.place", "string", ('("Main ""St"", 1",5,"2024-01-01 00:00:00+00")', "(,,)")),
    Case("int4range", "string", ("[1,10)", "empty", "(,5)")),
    Case("numrange", "string", ("[1.5,2.50]", "(,)")),
    Case("tstzrange", "string", ('["2024-01-01 00:00:00+00",infinity)',)),
    Case("int4multirange", "string", ("{[1,3),[5,8)}", "{}")),
)
_SHAPED = ("{{1,2},{3,4}}", "[0:1]={1,2}")
ARRAYS = (
    Case("integer[]", "array<int>", ("{}", "{1,NULL,-2147483648}", "{NULL}", *_SHAPED), _SHAPED),
    Case("smallint[]", "array<int>", ("{1,-32768}",)),
    Case("bigint[]", "array<bigint>", ("{9223372036854775807,NULL}",)),
    Case("real[]", "array<float>", ("{1.1,NaN,Infinity,-0}",)),
    Case("double precision[]", "array<double>", ("{0.1,NaN,-Infinity,5e-324}",)),
    Case("boolean[]", "array<boolean>", ("{t,f,NULL}",)),
    Case("bytea[]", "array<binary>", ('{"\\\\x00ff","\\\\x",NULL}',)),
    Case("numeric(10,2)[]", "array<decimal(10,2)>", ("{1.10,-99999999.99,NULL}", "{1.00,NaN}"), ("{1.00,NaN}",)),
    Case("numeric[]", "array<string>", ("{1.10,NaN,1e40}",)),
    Case(
        "date[]",
        "array<date>",
        ('{"0044-03-15 BC",5874897-12-31}', "{2024-01-01,infinity}"),
        ("{2024-01-01,infinity}",),
    ),
    Case(
        "timestamp[]",
        "array<timestamp_ntz>",
        ('{"1500-02-28 00:00:00",NULL}', '{infinity,"2024-01-01 00:00:00"}'),
        ('{infinity,"2024-01-01 00:00:00"}',),
    ),
    Case("timestamptz[]", "array<timestamp>", ('{"2024-01-01 00:00:00+00"}', "{-infinity}"), ("{-infinity}",)),
    Case(
        "text[]",
        "array<string>",
        ('{"a,b","{c}","[0:1]=","quote \\" \\\\",NULL,"NULL",""}', "{{a,b}}", "[2:2]={x}"),
        ("{{a,b}}", "[2:2]={x}"),
    ),
    Case("char(3)[]", "array<string>", ('{a,"b  "}',)),
    Case("uuid[]", "array<string>", ("{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}",)),
    Case("jsonb[]", "array<string>", ('{"{\\"a\\": 1}","null",NULL}',)),
    Case("public.mood[]", "array<string>", ('{sad,"so so"}',)),
    Case("public.place[]", "array<string>", ('{"(a,1,)",NULL}',)),
    Case("interval[]", "array<string>", ('{"1 day",NULL}',)),
    Case("box[]", "string", ("{(2,2),(1,1);(4,4),(3,3)}",)),
)
GROUPS = {
    "Numbers": NUMBERS,
    "Dates and times": TIMES,
    "Text, bytes and names": TEXTS,
    "JSON": DOCUMENTS,
    "Shapes": SHAPES,
    "Enums, domains, composites, ranges": OWN,
    "Arrays": ARRAYS,
}
CASES = tuple(case for group in GROUPS.values() for case in group)


def columns(major: int) -> dict[str, Case]:
    """Name of the column → what is in it, for a source of that version."""
    return {f"c{number}": case for number, case in enumerate(CASES) if case.since <= major}


def _parquet(spark: str) -> str:
    names = {"timestamp": "timestamp (UTC)", "timestamp_ntz": "timestamp without zone", "string": "string: its text"}
    return names.get(spark, spark.replace("timestamp_ntz", "timestamp without zone"))


def rows(cases: tuple[Case, ...]) -> Iterator[str]:
    """Lines of the table: one for each type, whatever the number of its cases."""
    for name in dict.fromkeys(case.type for case in cases):
        of_type = [case for case in cases if case.type == name]
        exact = ", ".join(f"`{value}`" for case in of_type for value in case.exact)
        yield f"| `{name.removeprefix('public.')}` | {_parquet(of_type[0].spark)} | {exact} |"


def table() -> str:
    """The generated part of docs/reference/parquet.md."""
    parts = []
    for title, cases in GROUPS.items():
        parts += [f"### {title}", "", "| Postgres | Parquet | null in the column, text in `exact` |", "|---|---|---|"]
        parts += [*rows(cases), ""]
    return "\n".join(parts)


if __name__ == "__main__":
    PART.write(table())
