"""Parse the text of a condition by the grammar in condition.lark, which has a rule for everything allowed. Pure."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import cast

from lark import Lark, UnexpectedInput, UnexpectedToken

from pipeline.snapshots.conditions.lexer import ConditionLexer, refused, shown
from pipeline.snapshots.conditions.nodes import ConditionNode
from pipeline.snapshots.conditions.rules import OperatorRules, TypeRules, ValueRules


class _Rules(OperatorRules, ValueRules, TypeRules):
    """The methods for all rules of the grammar."""


def parsed(text: str) -> ConditionNode:
    """Parse a condition. Raises ConditionRefusedError with the part that is not allowed."""
    try:
        return cast(ConditionNode, _parser().parse(text))
    except UnexpectedInput as error:
        raise refused(_explanation(text, error)) from None


@cache
def _parser() -> Lark:
    grammar = files(__package__).joinpath("condition.lark").read_text("utf-8")
    # strict: an ambiguous grammar does not load
    return Lark(grammar, parser="lalr", lexer=ConditionLexer, transformer=_Rules(), strict=True)


def _explanation(text: str, error: UnexpectedInput) -> str:
    token = error.token if isinstance(error, UnexpectedToken) else None
    if token is None or token.type == "$END":
        return "it ends too early: complete the expression" if text.strip() else "it is empty: write an expression"
    place, part = (token.start_pos or 0) + 1, shown(token)
    if token.lower() in ("select", "values", "with", "table", "from", "lateral", "union"):
        return f"{part} (character {place}) is not allowed: a condition has no subquery, only columns and values"
    if token.lower() == "operator":
        return f"{part} (character {place}) is not allowed: write the operator alone, and only those of Postgres itself"
    if token.type == "COMMA":
        return f"a , at character {place} is not allowed: a row of values is no condition; compare one by one"
    if token.type == "RESERVED":
        return f"{part} (character {place}) is a word that no condition has: if it is a column, put it in double quotes"
    return (
        f"{part} (character {place}) is not expected there: correct it, or put parentheses where the order is unclear"
    )
