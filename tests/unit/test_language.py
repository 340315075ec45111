"""The repository is written in plain English, as docs/internals/language.md describes it."""

from __future__ import annotations

from collections import Counter

from tests.fixtures import plain_english, plain_pages
from tests.fixtures.plain_english import KINDS, Reader
from tests.fixtures.plain_pages import PageText

WRITTEN = '''
"""Where a row is missing, it is read anew."""

class Found:
    """By name."""
    left: int  # who is waited for
    """The same."""

def look() -> None:
    """Return the rows, and so are its columns. `anew` is a word."""
    raise ValueError("nobody is there")  # What is this? What you need:
'''


def test_each_room_is_written_as_plainly_as_before():
    found = plain_english.places()
    now, limits = plain_english.counts(found), plain_english.limits()
    over = {(room, kind) for room in now for kind in KINDS if now[room][kind] > limits.get(room, {}).get(kind, 0)}
    worse = [f"{each.where}: {each.kind}: {each.text}" for each in found if (each.room, each.kind) in over]
    assert worse == [], "rewrite what you have added, as docs/internals/language.md says"


def test_each_kind_is_counted_and_good_english_is_not():
    reader = Reader()
    reader.read("pipeline/log/one.py", WRITTEN)
    reader.read("pipeline/log/two.py", "class Found: pass")
    reader.read("tests/test_it.py", f"def test_{'x' * 70}(): pass")
    reader.read("pipeline/log/sql/three.sql", "-- rows as ever\ncomment on table t is 'put right by the worker';")
    reader.finish()
    counted = Counter((each.where, each.kind, each.text) for each in reader.places)
    assert Counter(each.kind for each in reader.places) == {
        "idioms": 5,
        "openings": 1,
        "headless docstrings": 3,
        "participles": 2,
        "types of one word": 2,
        "shared names": 2,
        "long tests": 1,
    }, counted


def test_each_page_is_written_as_plainly_as_before():
    limits, worse = plain_pages.limits(), []
    for page in plain_pages.pages():
        found, wanted = page.counts(), page.goals()
        for kind in plain_pages.KINDS:
            slack = plain_pages.SLACK.get(kind, 0) if page.name in limits else 0
            allowed = limits.get(page.name, wanted)[kind]
            limit = min(wanted[kind], allowed - slack) if kind == "reader %" else max(wanted[kind], allowed + slack)
            if plain_pages.is_worse(kind, found[kind], limit):
                worse.append(f"{page.name}: {kind}: {found[kind]:.1f}, not {limit:.3g}")
    assert worse == [], f"rewrite them; `python -m tests.fixtures.plain_pages {worse[0].split(':')[0]}` lists sentences"


def test_a_page_that_meets_its_goals_has_no_limits():
    missing = {page.name for page in plain_pages.pages() if plain_pages.missed(page)}
    assert plain_pages.limits().keys() - missing == set(), "take out their rows in docs/internals/language.md"


def test_sentences_cells_and_words_in_tables_are_counted():
    text = """
# A heading of many words that is not counted

You have four words. Where it is, nothing is found anew.

**In short.** If it fails, run `check`.

- Run it. `code anew` is code, and {long}.

| a | {wide} |
```console
$ this is not counted, whoever reads it
```
""".format(long=" ".join(["word"] * 26), wide=" ".join(["word"] * 26))
    page = PageText("README.md", text)
    assert [len(each.split()) for each in page.sentences()] == [4, 7, 5, 31]
    assert {kind: len(texts) for kind, texts in page.places().items()} == {
        "long": 1, "odd": 1, "idioms": 1, "wide cells": 1,
    }  # fmt: skip
    assert page.counts()["reader %"] == 50
    assert page.counts()["tables %"] == 100 * 27 / (27 + 47)
