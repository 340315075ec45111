"""Build the nodes of a condition: lark calls a method here when a rule of condition.lark is complete. Pure."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from lark import Token, Transformer

from pipeline.snapshots.conditions.lexer import refused
from pipeline.snapshots.conditions.nodes import (
    CastType,
    ConditionNode,
    NodePiece,
    OperatorRank,
    SqlName,
    build,
    call,
    column,
    name_of,
    string,
    type_of,
)


def listed(parts: list[ConditionNode]) -> list[NodePiece]:
    """Return the parts with commas between them."""
    pieces: list[NodePiece] = []
    for part in parts:
        pieces += [", ", (part, OperatorRank.OR)]
    return pieces[1:]


def _operation(
    rank: OperatorRank, left: OperatorRank, right: OperatorRank
) -> Callable[[object, list[ConditionNode]], ConditionNode]:
    """Return the rule of an operator between two parts."""

    def rule(_self: object, children: list[ConditionNode]) -> ConditionNode:
        first, operator, second = children
        written = str(operator).replace("!=", "<>")
        if written == "%":  # by its function: a % in the sql could become a placeholder
            sql = ("", "pg_catalog.mod("), (first, left), (" % ", ", "), (second, right), ("", ")")
            return build(rank, *sql)
        return build(rank, (first, left), f" {written} ", (second, right))

    return rule


def _around(rank: OperatorRank, *words: str | OperatorRank) -> Callable[[object, list[ConditionNode]], ConditionNode]:
    """Return a rule that writes these words, and a part for each rank among them."""

    def rule(_self: object, children: list[ConditionNode]) -> ConditionNode:
        rest = iter(children)
        return build(rank, *(word if isinstance(word, str) else (next(rest), word) for word in words))

    return rule


def _chain(rank: OperatorRank, word: str) -> Callable[[object, list[ConditionNode]], ConditionNode]:
    def rule(_self: object, children: list[ConditionNode]) -> ConditionNode:
        pieces: list[NodePiece] = []
        for child in children:
            pieces += [f" {word} ", (child, OperatorRank(rank + 1))]
        return build(rank, *pieces[1:])

    return rule


def _quantified(rank: OperatorRank, left: OperatorRank) -> Callable[[object, list[ConditionNode]], ConditionNode]:
    def rule(_self: object, children: list[ConditionNode]) -> ConditionNode:
        first, operator, quantifier, second = children
        return build(rank, (first, left), f" {_words(operator)} {_words(quantifier)} (", (second, OperatorRank.OR), ")")

    return rule


def _words(part: object) -> str:
    return str(part).lower().replace("!=", "<>")


_compared, _ranged = partial(_around, OperatorRank.IS), partial(_around, OperatorRank.RANGED)
_LEFT, _RIGHT, _OPERAND = OperatorRank.IS, OperatorRank.COMPARED, OperatorRank.OTHER


class OperatorRules(Transformer[Token, ConditionNode]):
    """The rules of operators."""

    disjunction, conjunction = _chain(OperatorRank.OR, "or"), _chain(OperatorRank.AND, "and")
    negation = _around(OperatorRank.NOT, "not ", OperatorRank.NOT)
    is_null, is_not_null = _compared(_LEFT, " is null"), _compared(_LEFT, " is not null")
    is_distinct = _around(OperatorRank.DISTINCT, _LEFT, " is distinct from ", _RIGHT)
    is_not_distinct = _around(OperatorRank.DISTINCT, _LEFT, " is not distinct from ", _RIGHT)
    between = _ranged(_OPERAND, " between ", _OPERAND, " and ", _OPERAND)
    not_between = _ranged(_OPERAND, " not between ", _OPERAND, " and ", _OPERAND)
    between_symmetric = _ranged(_OPERAND, " between symmetric ", _OPERAND, " and ", _OPERAND)
    not_between_symmetric = _ranged(_OPERAND, " not between symmetric ", _OPERAND, " and ", _OPERAND)
    at_time_zone = _around(OperatorRank.ZONED, OperatorRank.ZONED, " at time zone ", OperatorRank.SIGNED)
    comparison = _operation(OperatorRank.COMPARED, OperatorRank.RANGED, OperatorRank.RANGED)
    operation = _operation(OperatorRank.OTHER, OperatorRank.OTHER, OperatorRank.SUM)
    addition = _operation(OperatorRank.SUM, OperatorRank.SUM, OperatorRank.PRODUCT)
    multiplication = _operation(OperatorRank.PRODUCT, OperatorRank.PRODUCT, OperatorRank.POWER)
    raised = _operation(OperatorRank.POWER, OperatorRank.POWER, OperatorRank.ZONED)
    like_plain = _operation(OperatorRank.RANGED, OperatorRank.OTHER, OperatorRank.OTHER)
    is_in = _ranged(_OPERAND, " in (", OperatorRank.OR, ")")
    is_not_in = _ranged(_OPERAND, " not in (", OperatorRank.OR, ")")
    quantified = _quantified(OperatorRank.COMPARED, OperatorRank.RANGED)
    quantified_other = _quantified(OperatorRank.OTHER, OperatorRank.OTHER)
    like_quantified = _quantified(OperatorRank.RANGED, OperatorRank.OTHER)

    def is_state(self, children: list[ConditionNode]) -> ConditionNode:
        return build(OperatorRank.IS, (children[0], _LEFT), f" is {children[1]}")

    def is_not_state(self, children: list[ConditionNode]) -> ConditionNode:
        return build(OperatorRank.IS, (children[0], _LEFT), f" is not {children[1]}")

    def state(self, children: list[Token]) -> str:
        return children[0].lower()

    def like(self, children: list[Token]) -> str:
        return " ".join(_words(child) for child in children)

    def like_escape(self, children: list[ConditionNode]) -> ConditionNode:
        first, word, second, escape = children
        pieces: list[NodePiece] = [(first, _OPERAND), f" {word} ", (second, _OPERAND), " escape ", (escape, _OPERAND)]
        return build(OperatorRank.RANGED, *pieces)

    def sign(self, children: list[ConditionNode]) -> ConditionNode:
        sign, signed = children
        space = " " if signed.rank == OperatorRank.SIGNED else ""  # two minus signs begin a comment
        return build(OperatorRank.SIGNED, f"{sign}{space}", (signed, OperatorRank.SIGNED))


class ValueRules(Transformer[Token, ConditionNode]):
    """The rules of columns, literals, calls and other operands."""

    def number(self, children: list[Token]) -> ConditionNode:
        return build(OperatorRank.SIMPLE, children[0].lower())

    def string(self, children: list[Token]) -> ConditionNode:
        return string(str(children[0]))

    def constant(self, children: list[Token]) -> ConditionNode:
        return build(OperatorRank.SIMPLE, children[0].lower())

    moment = constant

    def column(self, children: list[Token]) -> ConditionNode:
        return column(name_of(children[0]).name)

    def parenthesis(self, children: list[ConditionNode]) -> ConditionNode:
        return children[0]

    def element(self, children: list[ConditionNode]) -> ConditionNode:
        return build(
            OperatorRank.ELEMENT, (children[0], OperatorRank.ELEMENT), "[", (children[1], OperatorRank.OR), "]"
        )

    def array(self, children: list[Any]) -> ConditionNode:
        return build(OperatorRank.SIMPLE, "array[", (children[0], OperatorRank.OR) if children[0] else "", "]")

    def items(self, children: list[ConditionNode]) -> ConditionNode:
        return build(OperatorRank.ELEMENT, *listed(children), levels=0)

    def when(self, children: list[ConditionNode]) -> ConditionNode:
        return build(
            OperatorRank.ELEMENT,
            " when ",
            (children[0], OperatorRank.OR),
            " then ",
            (children[1], OperatorRank.OR),
            levels=0,
        )

    def case(self, children: list[Any]) -> ConditionNode:
        *whens, otherwise = children
        pieces: list[NodePiece] = [(when, OperatorRank.ELEMENT) for when in whens if when]
        ending: list[NodePiece] = [" else ", (otherwise, OperatorRank.OR)] if otherwise else []
        return build(OperatorRank.SIMPLE, "case", *pieces, *ending, " end")

    def case_of(self, children: list[Any]) -> ConditionNode:
        first, *whens, otherwise = children
        pieces: list[NodePiece] = [(when, OperatorRank.ELEMENT) for when in whens if when]
        ending: list[NodePiece] = [" else ", (otherwise, OperatorRank.OR)] if otherwise else []
        return build(OperatorRank.SIMPLE, "case ", (first, OperatorRank.OR), *pieces, *ending, " end")

    def call(self, children: list[Any]) -> ConditionNode:
        name, arguments = children
        return call(name, [(arguments, OperatorRank.OR)] if isinstance(arguments, ConditionNode) else [])

    def arguments(self, children: list[ConditionNode]) -> ConditionNode:
        return build(OperatorRank.ELEMENT, *listed(children), levels=0)

    def named(self, children: list[Any]) -> ConditionNode:
        name = name_of(str(children[0]))
        quoted = name.name.replace('"', '""')
        return build(
            OperatorRank.ELEMENT, (f"{name.text} => ", f'"{quoted}" => '), (children[1], OperatorRank.OR), levels=0
        )

    def field(self, children: list[Token]) -> ConditionNode:
        return string(str(children[0]) if children[0].type == "STRING" else name_of(children[0]).name)

    def extract(self, children: list[Any]) -> ConditionNode:
        name, field, source = children
        if (name.name, name.quoted, name.qualified) != ("extract", False, False):
            raise refused(f"{name.text}(… from …) is not allowed: put commas between arguments")
        pieces: list[NodePiece] = ["extract(", (field, OperatorRank.OR), " from ", (source, OperatorRank.OR), ")"]
        return build(OperatorRank.SIMPLE, *pieces, functions="extract")


class TypeRules(Transformer[Token, ConditionNode]):
    """The rules of casts, and of names that have a schema."""

    def cast_to(self, children: list[Any]) -> ConditionNode:
        node, kind = children
        return build(OperatorRank.CAST, (node, OperatorRank.CAST), (f"::{kind.text}", f"::{kind.sql}"), types=kind.name)

    def typed(self, children: list[Any]) -> ConditionNode:
        name, zone, value = children
        return self.cast_to([string(str(value)), type_of(name_of(str(name)), "", str(zone or ""), "")])

    def type(self, children: list[Any]) -> CastType:
        name, length, zone, bounds = children
        return type_of(name, str(length or ""), str(zone or ""), str(bounds))

    def length(self, children: list[Token]) -> str:
        return "".join(children).replace(",", ", ")

    def zone(self, children: list[Token]) -> str:
        return str(children[0])

    def bounds(self, children: list[Token]) -> str:
        return "[]" * len(children)

    def plain_name(self, children: list[Token]) -> SqlName:
        return name_of(children[0])

    def qualified(self, children: list[Token]) -> SqlName:
        return name_of(children[1], children[0])
