"""Every type Postgres has with its hardest values, and how it is in `record`: proved by test_types.py.

`python -m tests.fidelity.types.page` writes the table of docs/reference/types.md from it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

EVERY_CONTROL = "".join(chr(code) for code in range(1, 32)) + "\x7f\x80\x9f"
HARD_TEXTS = (
    "quote \" and ' and \\ and `",
    "\\N",
    "a\tb\nc\rd\\te\\n",
    EVERY_CONTROL,
    "ä€😀\U0010ffff\ufeff\u2028\u200f",
    "",
    " a ",
    "NULL",
    "null",
    "{a,b}",
    "%s %(a)s {}",
    '{"a": 1}',
    "(,)",
    "e\u0301\ufffd\uffff\ue000",
)
_INFINITIES = ("infinity", "-infinity")
_DIGITS = "1234567890" * 100


@dataclass(frozen=True)
class Case:
    """A column type. `form`: how it is in `record`; `values`: texts as Postgres takes them, the page's example first.

    `written`: that one in `record`, where it is not a string of the text itself. `since`: the major version that has
    it; `needs`: what the server must be built with. `nulls`: whether it may be NULL.
    """

    type: str
    form: str
    values: tuple[str, ...]
    written: str | None = None
    since: int = 15
    needs: str = ""
    nulls: bool = True

    def in_record(self) -> str:
        """The first value's JSON text."""
        return self.written or json.dumps(self.values[0], ensure_ascii=False)


NUMBER = "number"
FLOAT = "number; `-0`, `NaN` and infinities: string"
TEXT = "string"
DOCUMENT = "the document itself"

SETUP = (
    "create type public.mood as enum ('sad', 'so so', 'Happy, \"very\"', 'it''s \\ {} (,)')",
    "create domain public.positive as integer check (value > 0)",
    "create domain public.small_positive as public.positive check (value < 100)",
    "create domain public.email as text check (value like '%@%')",
    "create domain public.free_document as json",
    "create domain public.document as jsonb",
    "create domain public.object as public.document not null check (jsonb_typeof(value) in ('object', 'null'))",
    "create domain public.integers as integer[]",
    "create domain public.moods as public.mood[]",
    "create type public.place as (street text, number integer, at timestamptz)",
    'create type public."od%s ""type" as ("a b" text, "%s" json, "c""d" jsonb)',
    'create type public.nested as (at public.place, before public.place[], odd public."od%s ""type", n float8)',
    "create domain public.known_place as public.place check ((value).number > 0)",
    "create type public.float_range as range (subtype = float8)",
    "create type public.text_range as range (subtype = text, multirange_type_name = public.text_ranges)",
)
EXTENSIONS = {"hstore": "create extension hstore schema public", "citext": "create extension citext schema public"}

NUMBERS = (
    Case("smallint", NUMBER, ("-32768", "32767", "0"), "-32768"),
    Case("integer", NUMBER, ("-2147483648", "2147483647", "0"), "-2147483648"),
    Case("bigint", NUMBER, ("9007199254740993", "-9223372036854775808", "9223372036854775807"), "9007199254740993"),
    Case("oid", NUMBER, ("4294967295", "0"), "4294967295"),
    Case(
        "real",
        FLOAT,
        ("1.1", "-0", "3.4028235e+38", "1e-45", "16777217", "NaN", *_INFINITIES),
        "1.1",
    ),
    Case(
        "double precision",
        FLOAT,
        ("0.1", "-0", "0", "1.7976931348623157e+308", "5e-324", "0.30000000000000004", "1e15", "NaN", *_INFINITIES),
        "0.1",
    ),
    Case(
        "numeric",
        "number; `NaN` and infinities: string",
        ("1.10", "-0.00", f"-{_DIGITS}.{_DIGITS}", "1e131071", f"{'0.' + '0' * 16382}1", "NaN", *_INFINITIES),
        "1.10",
    ),
    Case("numeric(12,2)", "the same", ("-9999999999.99", "0.10", "NaN"), "-9999999999.99"),
    Case("numeric(5,-2)", "the same", ("9999900", "-149"), "9999900"),
    Case("money", TEXT, ("-92233720368547758.08", "12.34", "92233720368547758.07"), '"-$92,233,720,368,547,758.08"'),
)
TIMES = (
    Case("date", TEXT, ("0044-03-15 BC", "4713-01-01 BC", "5874897-12-31", "10000-01-01", *_INFINITIES)),
    Case("time", TEXT, ("24:00:00", "00:00:00", "23:59:59.999999")),
    Case("time(2)", TEXT, ("12:34:56.78",)),
    Case("timetz", TEXT, ("24:00:00-15:59:59", "00:00:00+15:59:59", "01:02:03.000001+05:30")),
    Case(
        "timestamp",
        TEXT,
        (
            *("0044-03-15 12:00:00 BC", "4713-01-01 00:00:00 BC", "294276-12-31 23:59:59.999999", *_INFINITIES),
            *("2024-02-29 12:34:56.1", "9999-12-31 23:59:59", "0001-01-01 00:00:00"),
        ),
    ),
    Case(
        "timestamptz",
        TEXT,
        ("2024-02-29 12:34:56.000001+00", "4713-01-01 00:00:00+00 BC", "294276-12-31 23:59:59+00", *_INFINITIES),
    ),
    Case(
        "interval",
        TEXT,
        (
            "-1 mons +1 day -00:00:00.000001",
            "1 mon -1 day 00:00:00.000001",
            "-1 year -2 mons -3 days -04:05:06",
            "-1 years +2 days",
            "-00:00:01",
            "0",
            "-178956970 years -8 mons -2147483648 days",
            "178956970 years 7 mons 2147483647 days 2562047788:00:54.775807",
        ),
        '"-1 mons +1 day -00:00:00.000001"',
    ),
    Case("interval", TEXT, _INFINITIES, since=17),
)
TEXTS = (
    Case("text", TEXT, HARD_TEXTS),
    Case("varchar(5)", TEXT, ("abc  ", "", "ä€😀\t\\")),
    Case("char(5)", TEXT, ("ab   ", "     ", "ä€😀\n\\")),
    Case("char", TEXT, (" ", "😀")),
    Case('"char"', TEXT, ("x", "", "\\", '"', "\\303", "\\200")),
    Case("name", TEXT, ("pg_class", "x" * 63, "")),
    Case("bytea", TEXT, ("\\x00ff5c27", "\\x", "\\x" + bytes(range(256)).hex())),
    Case("boolean", "true, false", ("true", "false"), "true"),
    Case("uuid", TEXT, ("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "00000000-0000-0000-0000-000000000000")),
    Case("bit(3)", TEXT, ("101",)),
    Case("bit varying", TEXT, ("0101", "", "1" * 1000)),
    Case("xml", TEXT, ('<a b="c">ä\n</a>', "text", "", '<?xml version="1.1"?><a/>'), needs="xml"),
    Case("public.citext", TEXT, ("Straße", ""), needs="citext"),
    Case("public.hstore", TEXT, ('"a"=>NULL, "b c"=>"d\\"e"', ""), needs="hstore"),
)
DOCUMENTS = (
    Case(
        "json",
        DOCUMENT,
        (
            '{"b": 1, "a": [null]}',
            '{"b": 1,  "a": 1e2, "a": 2}',
            "null",
            '"text"',
            '"\\u0000"',
            '{"\\u0000": 1, "a": "\\ud800"}',
            " [1 , 2 ]\n",
            "1.10",
            "-0",
            "1e400000",
            "{}",
            '{"": {"%s": "{}", "\\"": "\\\\u0000", "ä😀": true}}',
            "[" * 4000 + "]" * 4000,
        ),
        '{"a": [null], "b": 1}',
    ),
    Case(
        "jsonb",
        DOCUMENT,
        (
            '{"a": {"c": null}}',
            "null",
            '"text"',
            '"null"',
            "[1, 2]",
            "1.10",
            "-0.0",
            "true",
            '{"": {"%s": "{}", "\\"": "\\\\u0000", "ä😀": true}}',
            f"[1e308, {_DIGITS}]",
            "[" * 4000 + "]" * 4000,
        ),
        '{"a": {"c": null}}',
    ),
    Case("public.free_document", "as json", ('{"a":1}', "null", '"\\u0000"', '"text"'), '{"a": 1}'),
    Case("public.document", "as jsonb", ('{"a": 1}', "null", '"text"'), '{"a": 1}'),
    Case("public.object", "as jsonb", ('{"a": 1}', "null"), '{"a": 1}', nulls=False),
    Case("jsonpath", TEXT, ('$."a"[*]', 'strict $."a b"?(@ > 1.5 && @."c" like_regex "^a")', "$")),
)
NETWORK = (
    Case("inet", TEXT, ("192.168.0.1/24", "::1", "::ffff:1.2.3.4/128", "0.0.0.0/0")),
    Case("cidr", TEXT, ("10.0.0.0/8", "2001:db8::/32")),
    Case("macaddr", TEXT, ("08:00:2b:01:02:03",)),
    Case("macaddr8", TEXT, ("08:00:2b:01:02:03:04:05",)),
)
SEARCH = (
    Case("tsvector", TEXT, ("'a':1A,2 'cat':3", "'it''s' '\\\\' 'ä b'", "")),
    Case("tsquery", TEXT, ("'a' & !'b'", "( 'it''s':*AB | 'c' ) <-> 'd'", "'a' <2> 'b'", "")),
)
SHAPES = (
    Case("point", TEXT, ("(1.5,-2)", "(NaN,Infinity)", "(-0,1e-300)")),
    Case("lseg", TEXT, ("[(0,0),(1,1)]",)),
    Case("line", TEXT, ("{1,-1,0}", "{-0.1,1,1e300}")),
    Case("box", TEXT, ("(2,2),(1,1)", "(0,-0),(-1,-1)")),
    Case("path", TEXT, ("((0,0),(1,1))", "[(0,0),(1,1)]")),
    Case("polygon", TEXT, ("((0,0),(1,1),(2,0))",)),
    Case("circle", TEXT, ("<(1,2),3>",)),
)
OWN = (
    Case("public.mood", TEXT, ("so so", 'Happy, "very"', "it's \\ {} (,)")),
    Case("public.positive", TEXT, ("1", "2147483647")),
    Case("public.small_positive", TEXT, ("99",)),
    Case("public.email", TEXT, ("a@b", "\t@\\")),
    Case("public.integers", TEXT, ("[0:1]={1,NULL}", "{}")),
    Case("public.moods", TEXT, ('{sad,"so so",NULL}',)),
    Case("public.place", TEXT, ('("Main ""St"", 1",5,"2024-01-01 00:00:00+00")', "(,,)", '("",-1,infinity)')),
    Case("public.known_place", TEXT, ("(a,5,)",)),
    Case(
        'public."od%s ""type"',
        TEXT,
        (
            '("a\\\\b","{""b"": 1,  ""a"": ""\\\\u0000""}","{""c"": null}")',
            "(,null,null)",
            '("","""x""","""\\\\\\\\""")',
        ),
    ),
    Case(
        "public.nested",
        TEXT,
        (
            '("(""a b"",5,)","{""(c,,)"",NULL}","(x,null,)",-0)',
            '("(""a \\\\""\\\\"" b"",5,)","{""(c,,)"",NULL}","(""x\ty"",null,)",-0)',
            '("(,,)","[2:2]={""(\\\\""\\\\\\\\,\\\\"",1,)""}",,NaN)',
        ),
    ),
)
RANGES = (
    Case("int4range", TEXT, ("[1,10)", "empty", "(,5)", "(,)")),
    Case("int8range", TEXT, ("[-9223372036854775808,9223372036854775807)",)),
    Case("numrange", TEXT, ("[1.50,2.5]", "(,NaN)", "[-Infinity,Infinity]")),
    Case("daterange", TEXT, ('["0044-03-15 BC",infinity)', "[2024-01-01,)")),
    Case("tsrange", TEXT, ('["2024-01-01 00:00:00",infinity]',)),
    Case("tstzrange", TEXT, ('["0044-03-15 00:00:00+00 BC",infinity)',)),
    Case("public.float_range", TEXT, ("[-0,1e-07]",)),
    Case("public.text_range", TEXT, ('["a,b","c""d\\\\")', '("",z]')),
    Case("int4multirange", TEXT, ("{[1,3),[5,8)}", "{}", "{(,)}")),
    Case("int8multirange", TEXT, ("{[1,3)}",)),
    Case("nummultirange", TEXT, ("{[1.0,2.00],(3,)}",)),
    Case("datemultirange", TEXT, ('{(,"0044-03-15 BC"),[2024-01-01,infinity)}',)),
    Case("tsmultirange", TEXT, ('{["2024-01-01 00:00:00","2024-01-01 00:00:01"]}',)),
    Case("tstzmultirange", TEXT, ('{["2024-01-01 00:00:00+00",)}',)),
    Case("public.text_ranges", TEXT, ('{["a,b","c""d\\\\"),[{x,}]}',)),
)
SYSTEM = (
    Case("pg_lsn", TEXT, ("16/B374D848", "0/0")),
    Case("xid", TEXT, ("4294967295",)),
    Case("xid8", TEXT, ("18446744073709551615",)),
    Case("cid", TEXT, ("4294967295",)),
    Case("tid", TEXT, ("(4294967295,65535)", "(0,0)")),
    Case("pg_snapshot", TEXT, ("10:20:10,14,15", "1:1:")),
    Case("txid_snapshot", TEXT, ("10:20:10,14,15",)),
    Case("int2vector", TEXT, ("1 -2 3", "")),
    Case("oidvector", TEXT, ("1 4294967295", "")),
    Case("refcursor", TEXT, ("a 'b' \"c\"",)),
    Case("regclass", TEXT, ("pg_class", "pg_toast.pg_toast_1255")),
    Case("regtype", TEXT, ("timestamp with time zone", "integer[]", 'public."od%s ""type"')),
    Case("regproc", TEXT, ("pg_backend_pid",)),
    Case("regprocedure", TEXT, ("lower(text)",)),
    Case("regoper", TEXT, ("||/",)),
    Case("regoperator", TEXT, ("+(integer,integer)", "-(none,integer)")),
    Case("regrole", TEXT, ("pg_monitor",)),
    Case("regnamespace", TEXT, ("pg_catalog",)),
    Case("regconfig", TEXT, ("english",)),
    Case("regdictionary", TEXT, ("simple",)),
    Case("regcollation", TEXT, ('"C"', '"default"')),
    Case("aclitem", TEXT, ("pg_monitor=r/pg_monitor",)),
)
GROUPS = {
    "Numbers": NUMBERS,
    "Dates and times": TIMES,
    "Text and bytes": TEXTS,
    "JSON": DOCUMENTS,
    "Network addresses": NETWORK,
    "Text search": SEARCH,
    "Shapes": SHAPES,
    "Enums, domains, composites": OWN,
    "Ranges and multiranges": RANGES,
    "System types": SYSTEM,
}
CASES = tuple(case for group in GROUPS.values() for case in group)
