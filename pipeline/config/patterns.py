"""Patterns of tables: `schema.table`, in which `*` matches any text and all else itself. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache


def require_qualified(patterns: Iterable[str]) -> None:
    """Raises ValueError for what matches no `schema.table`, as `pipeline.check_consumer` does."""
    if isinstance(patterns, str):
        raise ValueError(f"tables takes a list of patterns like public.orders or shop.*, not the text {patterns!r}")
    for pattern in patterns:
        if not re.search(r"[.*]", pattern):
            raise ValueError(
                f"tables takes patterns like public.orders or shop.*: each with its schema, not {pattern!r}"
            )


def matches(patterns: tuple[str, ...], name: str) -> bool:
    """Whether one of the patterns matches this `schema.table`, taken as one text; no patterns match everything."""
    return not patterns or _compiled(patterns).fullmatch(name) is not None


def likes(patterns: Iterable[str]) -> list[str]:
    """The same for SQL: `schema || '.' || table like any (these)`; pipeline.matches does so in the database."""
    return [re.sub(r"([\\%_])", r"\\\1", pattern).replace("*", "%") for pattern in patterns]


@lru_cache(maxsize=1024)
def _compiled(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(pattern).replace(r"\*", ".*") for pattern in patterns), re.DOTALL)
