"""The repository is written in plain English, as docs/internals/language.md describes it."""

from __future__ import annotations

from collections import Counter

from tests.fixtures import plain_english
from tests.fixtures.plain_english import KINDS, Reader

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
