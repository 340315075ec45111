"""What a client's text may name: as SQL reads it, then letter by letter, and always quoted."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.wires.pgdeltastream.sessions import table_names


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("t", ['"t"']),
        ("T", ['"t"', '"T"']),
        ('"T"', ['"T"', '"""T"""']),
        ("public.T", ['"public"."t"', '"public"."T"', '"public.T"']),
        ('"a.b"."c""d"', ['"a.b"."c""d"', '"""a"."b"".""c""""d"""', '"""a.b"".""c""""d"""']),
        (" t ", ['"t"', '" t "']),
        ("Ärger", ['"Ärger"']),
        ("(select 1) q", ['"(select 1) q"']),
        ("t; drop table x", ['"t; drop table x"']),
        ("1t", ['"1t"']),
        ("a.b.c", ['"a"."b.c"', '"a.b.c"']),
        ("", []),
        ("t\0", []),
    ],
)
def test_tables_that_a_text_may_name(text: str, expected: list[str]):
    assert table_names.tables(text) == expected


@given(st.text(alphabet="aB_1\". ;()'\\é"))
def test_whatever_is_asked_for_stays_inside_of_quotes(text: str):
    quoted = r'"(?:[^"]|"")+"'
    for name in table_names.tables(text):
        assert re.fullmatch(rf"{quoted}(?:\.{quoted})?", name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id", "id"),
        ("ID", "id"),
        ('"Mixed"', "Mixed"),
        ("Mixed", "Mixed"),
        ("mixed", None),
        ("t.id", None),
        ("1", None),
    ],
)
def test_columns_that_a_text_may_name(text: str, expected: str | None):
    assert table_names.column(text, ["id", "Mixed"]) == expected
