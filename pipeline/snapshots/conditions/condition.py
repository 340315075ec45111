"""Conditions on the rows that a backfill reads: one boolean expression over the columns of the table.

The role that reads the source may have many rights, so the server never sends it text that a user wrote. `parse` reads
the text with the project's grammar (condition.lark), and the SQL for the source is written from the parsed nodes.
Only the source knows whether functions and types are harmless:
`pipeline/snapshots/conditions/check.py:require_harmless`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from psycopg import sql

from pipeline.errors import ConditionRefusedError
from pipeline.snapshots.conditions.lexer import LONGEST, shown
from pipeline.snapshots.conditions.nodes import ConditionNode, NodePiece, OperatorRank, build, column, string
from pipeline.snapshots.conditions.parser import parsed
from pipeline.snapshots.conditions.rules import listed

Scalar = str | int | float | bool
Value = Scalar | Sequence[Scalar] | None
_COMPARISONS = {"=": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_PATTERNS, _LISTS, _NULLS = ("like", "ilike"), ("in", "not in"), ("is null", "is not null")
_MOST_DIGITS = 4000


@dataclass(frozen=True)
class ColumnComparison:
    """One comparison of a condition that is given as data instead of text. A value has the type of its column.

    `operator`: =, <>, !=, <, <=, >, >=, like, ilike with one value; in, not in with a list of at least one value;
    is null, is not null with None.
    """

    column: str
    operator: str
    value: Value = None


@dataclass(frozen=True)
class RowCondition:
    """A parsed condition. `text` is stored and shown: parsing it again gives the same condition.

    `columns`, `functions` (of pg_catalog) and `types` (of pg_catalog, arrays by their elements) are the names in it.
    """

    text: str
    columns: frozenset[str]
    functions: frozenset[str]
    types: frozenset[str]
    _sql: str = field(repr=False)

    def sql(self) -> sql.Composable:
        """Return the SQL for a `where` clause, in parentheses. It has no `%`, so a query may have parameters or none.

        Use it only in the transaction in which `require_harmless` has passed.
        """
        return sql.SQL(f"({self._sql})")


def parse(text: str, columns: Collection[str]) -> RowCondition:
    """Parse the condition in a text of SQL. `columns`: the names of all columns of the table.

    Raises ConditionRefusedError with the part that is not allowed. This function does not know types:
    Postgres refuses a condition such as `id = 'abc'` when the rows are read.
    """
    _require_short(text, "--where")
    return _checked(parsed(text), columns, "--where")


def of_terms(terms: Sequence[ColumnComparison], columns: Collection[str]) -> RowCondition:
    """Build the condition that all of the terms are true. Raises ConditionRefusedError, as `parse` does."""
    if not terms:
        raise ConditionRefusedError("condition: it has no terms: give at least one column, operator and value")
    if len(terms) > LONGEST // len("a = ''"):
        raise ConditionRefusedError(
            f"condition: {len(terms)} terms are too many: a condition may have {LONGEST:,} characters"
        )
    pieces: list[NodePiece] = []
    for term in terms:
        pieces += [" and ", (_node(term), OperatorRank.NOT)]
    node = _node(terms[0]) if len(terms) == 1 else build(OperatorRank.AND, *pieces[1:])
    return _checked(node, columns, "condition")


def _require_short(text: str, what: str) -> None:
    if len(text) > LONGEST:
        raise ConditionRefusedError(f"{what}: it has {len(text):,} characters, allowed are {LONGEST:,}: shorten it")
    if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ConditionRefusedError(
            f"{what}: it has a NUL or half a character, which Postgres cannot store: leave it out"
        )


def _checked(node: ConditionNode, columns: Collection[str], what: str) -> RowCondition:
    if unknown := sorted(node.columns - set(columns)):
        known = ", ".join([shown(name) for name in list(columns)[:8]]) + (", …" if len(columns) > 8 else "")
        raise ConditionRefusedError(f"{what}: the table has no column {shown(unknown[0])}: use one of {known}")
    _require_short(node.text, what)  # the stored text is parsed again, and may be longer than the user's
    return RowCondition(node.text, node.columns, node.functions, node.types, node.sql)


def _node(term: ColumnComparison) -> ConditionNode:
    operator = " ".join(term.operator.lower().split())
    if operator in _NULLS:
        if term.value is not None:
            raise ConditionRefusedError(f"condition: {operator} of {shown(term.column)} takes no value: leave it out")
        return build(OperatorRank.IS, (column(term.column), OperatorRank.IS), f" {operator}")
    if operator in _LISTS:
        if isinstance(term.value, str) or not isinstance(term.value, Sequence) or not term.value:
            raise ConditionRefusedError(
                f"condition: {operator} of {shown(term.column)} takes a list of at least one value"
            )
        values = build(OperatorRank.ELEMENT, *listed([_literal(term, value) for value in term.value]))
        return build(
            OperatorRank.RANGED,
            (column(term.column), OperatorRank.OTHER),
            f" {operator} (",
            (values, OperatorRank.OR),
            ")",
        )
    if operator not in _COMPARISONS and operator not in _PATTERNS:
        known = ", ".join([*_COMPARISONS, *_PATTERNS, *_LISTS, *_NULLS])
        raise ConditionRefusedError(f"condition: the operator {shown(operator)} is not allowed: use one of {known}")
    rank, operand = (
        (OperatorRank.RANGED, OperatorRank.OTHER)
        if operator in _PATTERNS
        else (OperatorRank.COMPARED, OperatorRank.RANGED)
    )
    written = _COMPARISONS.get(operator, operator)
    return build(rank, (column(term.column), operand), f" {written} ", (_literal(term, term.value), operand))


def _literal(term: ColumnComparison, value: object) -> ConditionNode:
    if value is None:
        raise ConditionRefusedError(
            f"condition: {shown(term.operator)} of {shown(term.column)} takes no null: use is null or is not null"
        )
    if isinstance(value, bool):
        return string(str(value).lower())
    if isinstance(value, int) and abs(value).bit_length() > 3 * _MOST_DIGITS:
        raise ConditionRefusedError(f"condition: the number for {shown(term.column)} is too long: shorten it")
    if isinstance(value, str | int | float):
        return string(str(value))
    raise ConditionRefusedError(
        f"condition: {shown(term.operator)} of {shown(term.column)} takes one value: a string, number or boolean"
    )
