"""Patterns of tables: `schema.table`, in which `*` matches any text and every other character itself. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

MOST_STARS = 32
"""The most stars in one pattern of a new consumer; `pipeline.check_consumer` has the same limit."""
MOST_WITH_STARS = 1_000
"""The most patterns with a star in one call: each is compared with the name of every table that has changes."""


def require_qualified(patterns: Iterable[str]) -> None:
    """Raise ValueError for a pattern that can match no `schema.table`; `pipeline.check_consumer` refuses the same."""
    if isinstance(patterns, str):
        raise ValueError(f"tables takes a list of patterns like public.orders or shop.*, not the text {patterns!r}")
    for pattern in patterns:
        if not re.search(r"[.*]", pattern):
            raise ValueError(
                f"tables takes patterns like public.orders or shop.*: each with its schema, not {pattern!r}"
            )


def require_few(patterns: Iterable[str]) -> None:
    """Raise ValueError for more than MOST_WITH_STARS patterns with a star: comparing them would delay other clients."""
    if sum("*" in pattern for pattern in patterns) > MOST_WITH_STARS:
        raise ValueError(f"tables takes at most {MOST_WITH_STARS} patterns with a *: list names, or use wider patterns")


def matches(patterns: tuple[str, ...], name: str) -> bool:
    """True if one of the patterns matches this `schema.table`, taken as one text; no patterns match everything.

    The time grows linearly with the patterns and the name, whatever they are, and nothing is compiled or kept.
    """
    return not patterns or any(pattern == name or _fits(pattern, name) for pattern in patterns)


def likes(patterns: Iterable[str]) -> list[str]:
    """Return these patterns in the form that SQL's `like` needs, as `pipeline.matches` does in the database."""
    return [re.sub(r"([\\%_])", r"\\\1", pattern).replace("*", "%") for pattern in patterns]


def _fits(pattern: str, name: str) -> bool:
    """True if the name has the parts between the stars in their order, and begins and ends as the pattern does."""
    first, *rest = pattern.split("*")
    if not rest or not name.startswith(first):
        return False
    # The text between two stars is matched at its first place, which leaves the most text for the following parts.
    place = len(first)
    for part in rest[:-1]:
        if (found := name.find(part, place)) < 0:
            return False
        place = found + len(part)
    return name.endswith(rest[-1]) and place + len(rest[-1]) <= len(name)
