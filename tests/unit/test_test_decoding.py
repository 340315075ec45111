"""The parser of test_decoding's text that the order tests compare with."""

from __future__ import annotations

import pytest

from tests.fixtures.test_decoding import Change, assert_same, parse

KEYS = {"public.t": "id"}


def test_begin_and_commit_are_no_changes():
    assert parse("BEGIN 731", KEYS) == parse("COMMIT 731", KEYS) == parse("BEGIN", KEYS) == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("INSERT: id[integer]:1 note[text]:'it''s'", Change("public.t", "insert", "1", {"id": "1", "note": "it's"})),
        ("INSERT: id[integer]:1 note[text]:null", Change("public.t", "insert", "1", {"id": "1", "note": None})),
        ("INSERT: id[integer]:1 note[text]:'null'", Change("public.t", "insert", "1", {"id": "1", "note": "null"})),
        (
            "INSERT: id[integer]:1 at[timestamp without time zone]:'2024-01-02 03:04:05' tags[text[]]:'{a,\"b c\"}'",
            Change("public.t", "insert", "1", {"id": "1", "at": "2024-01-02 03:04:05", "tags": '{a,"b c"}'}),
        ),
        (
            'INSERT: id[integer]:1 "a ""b""[x]"[text]:\'y\' bits[bit]:B\'101\' ok[boolean]:true n[numeric]:-1.50',
            Change("public.t", "insert", "1", {"id": "1", 'a "b"[x]': "y", "bits": "101", "ok": "true", "n": "-1.50"}),
        ),
        (
            "INSERT: id[integer]:1 note[text]:'a\nb x[y]:1'",
            Change("public.t", "insert", "1", {"id": "1", "note": "a\nb x[y]:1"}),
        ),
        (
            "UPDATE: id[integer]:1 note[text]:unchanged-toast-datum",
            Change("public.t", "update", "1", {"id": "1"}, ("note",)),
        ),
        (
            "UPDATE: old-key: id[integer]:1 new-tuple: id[integer]:2 note[text]:''",
            Change("public.t", "update", "2", {"id": "2", "note": ""}),
        ),
        ("DELETE: id[integer]:-7", Change("public.t", "delete", "-7", {"id": "-7"})),
        ("DELETE: (no-tuple-data)", Change("public.t", "delete", "", {})),
    ],
)
def test_rows(line: str, expected: Change):
    assert parse(f"table public.t: {line}", KEYS) == [expected]


def test_truncate_is_one_change_per_table():
    assert parse("table public.a, public.b: TRUNCATE: restart_seqs cascade", KEYS) == [
        Change("public.a", "truncate", "", {}),
        Change("public.b", "truncate", "", {}),
    ]


def test_a_message_keeps_its_content():
    line = "message: transactional: 1 prefix: mark, sz: 9 content:one, two\n"
    assert parse(line, KEYS) == [Change(".mark", "message", "", {"content": "one, two\n"})]


@pytest.mark.parametrize("line", ["", "table public.t: MERGE: id[integer]:1", "table public.t: INSERT: id[integer]:'1"])
def test_other_text_is_refused(line: str):
    with pytest.raises(ValueError, match="test_decoding"):
        parse(line, KEYS)


@pytest.mark.parametrize("events", [["a", "b"], ["a", "c", "b"], ["a", "b", "c", "c"]])
def test_a_lost_a_repeated_and_a_misplaced_change_are_differences(events: list[str]):
    def changes(notes: list[str]) -> list[Change]:
        return [Change("public.t", "insert", "", {"note": note}) for note in notes]

    assert assert_same(changes(["a", "b", "c"]), changes(["a", "b", "c"])) == 3
    with pytest.raises(AssertionError, match=r"change [234]: "):
        assert_same(changes(events), changes(["a", "b", "c"]))
