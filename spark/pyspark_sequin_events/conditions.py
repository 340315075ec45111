"""Translates filters of options, and filters that Spark pushes down, to SQL. Pure, but for Spark's classes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from pyspark.sql import datasource
from pyspark.sql.datasource import Filter

from pyspark_sequin_events.query import literal

_NUMBERS = frozenset({"seq", "source_epoch", "commit_lsn", "source_table_oid"})
_TEXTS = frozenset({"action", "record_pk", "source_table_schema", "source_table_name"})
_LEAST, _MOST = -(2**63), 2**63 - 1
_COMPARISONS: Mapping[type[Filter], str] = {
    datasource.EqualTo: "=",
    datasource.EqualNullSafe: "=",
    datasource.GreaterThan: ">",
    datasource.GreaterThanOrEqual: ">=",
    datasource.LessThan: "<",
    datasource.LessThanOrEqual: "<=",
}


def option_conditions(
    tables: Iterable[str] | None, actions: Iterable[str] | None, keys: Iterable[str] | None
) -> tuple[str, ...]:
    """Return conditions that select what the options name; None stands for no restriction."""
    found = []
    for column, values in (("action", actions), ("record_pk", keys)):
        if values is not None:
            found.append(_among(column, [literal(value) for value in values]))
    if tables is not None:
        name = "source_table_schema || '.' || source_table_name"
        alike = [f"{name} like {literal(_like(table))}" for table in tables]
        found.append(f"({' or '.join(alike) or 'false'})")
    return tuple(found)


def filter_condition(pushed: Filter) -> str | None:
    """Return the condition that is true for exactly the rows that Spark's filter keeps; None if no condition is."""
    if isinstance(pushed, datasource.Not):
        inner = filter_condition(pushed.child)
        return None if inner is None or isinstance(pushed.child, datasource.EqualNullSafe) else f"not ({inner})"
    column = _column(pushed)
    if column is None:
        return None
    if isinstance(pushed, datasource.IsNotNull | datasource.IsNull):
        return f"{column} is {'not ' if isinstance(pushed, datasource.IsNotNull) else ''}null"
    if isinstance(pushed, datasource.In):
        values = [_literal(column, value) for value in pushed.value]
        return None if None in values else _among(column, values)
    return _comparison(pushed, column)


def _comparison(pushed: Filter, column: str) -> str | None:
    value = _literal(column, getattr(pushed, "value", None))
    if value is None:
        return None
    if isinstance(pushed, datasource.StringStartsWith):
        return f"starts_with({column}, {value})" if column in _TEXTS else None
    comparison = _COMPARISONS.get(type(pushed))
    if comparison is None or (comparison != "=" and column in _TEXTS):  # Postgres may order texts in another way
        return None
    return f"{column} {comparison} {value}"


def bounds(pushed: Iterable[Filter], after: int, upto: int) -> tuple[int, int]:
    """Return the part of after < seq <= upto that the filters keep; filters that do not name a seq change nothing."""
    narrow: Mapping[type[Filter], Callable[[int], tuple[int, int]]] = {
        datasource.EqualTo: lambda value: (value - 1, value),
        datasource.EqualNullSafe: lambda value: (value - 1, value),
        datasource.GreaterThan: lambda value: (value, upto),
        datasource.GreaterThanOrEqual: lambda value: (value - 1, upto),
        datasource.LessThan: lambda value: (after, value - 1),
        datasource.LessThanOrEqual: lambda value: (after, value),
    }
    low, high = after, upto
    for each in pushed:
        if type(each) in narrow and _column(each) == "seq" and _literal("seq", each.value) is not None:  # type: ignore[attr-defined]
            lower, upper = narrow[type(each)](each.value)  # type: ignore[attr-defined]
            low, high = max(low, lower), min(high, upper)
    return low, max(low, high)


def _column(pushed: Filter) -> str | None:
    path: tuple[str, ...] = getattr(pushed, "attribute", ())
    return path[0] if len(path) == 1 and path[0] in _NUMBERS | _TEXTS else None


def _literal(column: str, value: object) -> str | None:
    """Return the value as SQL; None if Postgres has no such value, or compares it in another way than Spark."""
    if column in _NUMBERS:
        fits = isinstance(value, int) and not isinstance(value, bool) and _LEAST <= value <= _MOST
        return f"({value})" if fits else None
    if not isinstance(value, str) or "\0" in value:
        return None
    try:
        value.encode()
    except UnicodeEncodeError:
        return None
    return literal(value)


def _among(column: str, values: Iterable[str | None]) -> str:
    found = ", ".join(str(value) for value in values)
    return f"{column} in ({found})" if found else "false"


def _like(pattern: str) -> str:
    """Return a pattern for LIKE: `*` matches anything, as in a consumer's patterns."""
    escaped = pattern.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return escaped.replace("*", "%")
