"""Patterns of tables: what they match, and how long that takes."""

from __future__ import annotations

import random
import re
import time

import pytest

from lake.states import divided_tables
from pipeline.config import patterns

HOSTILE = ("public." + "*" * 25 + "!", "*a" * 40 + "!", "*" + "a*" * 3 + "b", "*a*aab")


def as_a_regular_expression(given: tuple[str, ...], name: str) -> bool:
    """The meaning of patterns: a backtracking expression, which is too slow for many stars."""
    expression = "|".join(".*".join(map(re.escape, pattern.split("*"))) for pattern in given)
    return not given or re.fullmatch(expression, name, re.DOTALL) is not None


def test_patterns_match_as_the_regular_expression_says():
    chance = random.Random(55)
    found = set()
    for _ in range(5_000):
        given = tuple(
            "".join(chance.choices("ab.*\n\\", (4, 2, 2, 4, 1, 1), k=chance.randint(1, 7)))
            for _ in range(chance.randint(0, 3))
        )
        name = "".join(chance.choices("ab.*\n\\", (4, 2, 2, 1, 1, 1), k=chance.randint(0, 9)))
        matching = as_a_regular_expression(given, name)
        assert patterns.matches(given, name) is matching, (given, name)
        assert divided_tables._matches({"actions": [], "tables": given}, name, "read") is matching, (given, name)
        found.add(matching)
    assert found == {True, False}


@pytest.mark.parametrize("pattern", HOSTILE)
def test_a_pattern_with_many_stars_takes_linear_time(pattern: str):
    def seconds(length: int) -> float:
        name, best = "public." + "a" * length, float("inf")
        for _ in range(7):
            began = time.thread_time()
            for _ in range(30):
                assert not patterns.matches((pattern,), name)
                assert not divided_tables._matches({"actions": [], "tables": [pattern]}, name, "read")
            best = min(best, time.thread_time() - began)
        return best

    assert seconds(2_000) < 10 * seconds(500)
