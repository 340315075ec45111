"""What becomes of the rules of condition.lark, one method for each, called as soon as a rule is complete. Pure."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from lark import Token, Transformer

from pipeline.snapshots.conditions.lexer import refused
from pipeline.snapshots.conditions.nodes import (
    Name,
    Node,
    Piece,
    Rank,
    Typed,
    build,
    call,
    column,
    name_of,
    string,
    type_of,
)


def listed(parts: list[Node]) -> list[Piece]:
    """Between commas."""
    pieces: list[Piece] = []
    for part in parts:
        pieces += [", ", (part, Rank.OR)]
    return pieces[1:]


def _operation(rank: Rank, left: Rank, right: Rank) -> Callable[[object, list[Node]], Node]:
    """The rule of an operator between two parts."""

    def rule(_self: object, children: list[Node]) -> Node:
        first, operator, second = children
        written = str(operator).replace("!=", "<>")
        if written == "%":  # by its function: a % in the sql could become a placeholder
            sql = ("", "pg_catalog.mod("), (first, left), (" % ", ", "), (second, right), ("", ")")
            return build(rank, *sql)
        return build(rank, (first, left), f" {written} ", (second, right))

    return rule


def _around(rank: Rank, *words: str | Rank) -> Callable[[object, list[Node]], Node]:
    """A rule of words, with a part wherever a rank stands."""

    def rule(_self: object, children: list[Node]) -> Node:
        rest = iter(children)
        return build(rank, *(word if isinstance(word, str) else (next(rest), word) for word in words))

    return rule


def _chain(rank: Rank, word: str) -> Callable[[object, list[Node]], Node]:
    def rule(_self: object, children: list[Node]) -> Node:
        pieces: list[Piece] = []
        for child in children:
            pieces += [f" {word} ", (child, Rank(rank + 1))]
        return build(rank, *pieces[1:])

    return rule


def _quantified(rank: Rank, left: Rank) -> Callable[[object, list[Node]], Node]:
    def rule(_self: object, children: list[Node]) -> Node:
        first, operator, quantifier, second = children
        return build(rank, (first, left), f" {_words(operator)} {_words(quantifier)} (", (second, Rank.OR), ")")

    return rule


def _words(part: object) -> str:
    return str(part).lower().replace("!=", "<>")


_compared, _ranged = partial(_around, Rank.IS), partial(_around, Rank.RANGED)
_LEFT, _RIGHT, _OPERAND = Rank.IS, Rank.COMPARED, Rank.OTHER


class Operations(Transformer[Token, Node]):
    """Parts that are joined by operators."""

    disjunction, conjunction = _chain(Rank.OR, "or"), _chain(Rank.AND, "and")
    negation = _around(Rank.NOT, "not ", Rank.NOT)
    is_null, is_not_null = _compared(_LEFT, " is null"), _compared(_LEFT, " is not null")
    is_distinct = _around(Rank.DISTINCT, _LEFT, " is distinct from ", _RIGHT)
    is_not_distinct = _around(Rank.DISTINCT, _LEFT, " is not distinct from ", _RIGHT)
    between = _ranged(_OPERAND, " between ", _OPERAND, " and ", _OPERAND)
    not_between = _ranged(_OPERAND, " not between ", _OPERAND, " and ", _OPERAND)
    between_symmetric = _ranged(_OPERAND, " between symmetric ", _OPERAND, " and ", _OPERAND)
    not_between_symmetric = _ranged(_OPERAND, " not between symmetric ", _OPERAND, " and ", _OPERAND)
    at_time_zone = _around(Rank.ZONED, Rank.ZONED, " at time zone ", Rank.SIGNED)
    comparison = _operation(Rank.COMPARED, Rank.RANGED, Rank.RANGED)
    operation = _operation(Rank.OTHER, Rank.OTHER, Rank.SUM)
    addition = _operation(Rank.SUM, Rank.SUM, Rank.PRODUCT)
    multiplication = _operation(Rank.PRODUCT, Rank.PRODUCT, Rank.POWER)
    raised = _operation(Rank.POWER, Rank.POWER, Rank.ZONED)
    like_plain = _operation(Rank.RANGED, Rank.OTHER, Rank.OTHER)
    is_in = _ranged(_OPERAND, " in (", Rank.OR, ")")
    is_not_in = _ranged(_OPERAND, " not in (", Rank.OR, ")")
    quantified = _quantified(Rank.COMPARED, Rank.RANGED)
    quantified_other = _quantified(Rank.OTHER, Rank.OTHER)
    like_quantified = _quantified(Rank.RANGED, Rank.OTHER)

    def is_state(self, children: list[Node]) -> Node:
        return build(Rank.IS, (children[0], _LEFT), f" is {children[1]}")

    def is_not_state(self, children: list[Node]) -> Node:
        return build(Rank.IS, (children[0], _LEFT), f" is not {children[1]}")

    def state(self, children: list[Token]) -> str:
        return children[0].lower()

    def like(self, children: list[Token]) -> str:
        return " ".join(_words(child) for child in children)

    def like_escape(self, children: list[Node]) -> Node:
        first, word, second, escape = children
        pieces: list[Piece] = [(first, _OPERAND), f" {word} ", (second, _OPERAND), " escape ", (escape, _OPERAND)]
        return build(Rank.RANGED, *pieces)

    def sign(self, children: list[Node]) -> Node:
        sign, signed = children
        space = " " if signed.rank == Rank.SIGNED else ""  # two of them side by side begin a comment
        return build(Rank.SIGNED, f"{sign}{space}", (signed, Rank.SIGNED))


class Values(Transformer[Token, Node]):
    """Columns, literals, calls and what else stands between operators."""

    def number(self, children: list[Token]) -> Node:
        return build(Rank.SIMPLE, children[0].lower())

    def string(self, children: list[Token]) -> Node:
        return string(str(children[0]))

    def constant(self, children: list[Token]) -> Node:
        return build(Rank.SIMPLE, children[0].lower())

    moment = constant

    def column(self, children: list[Token]) -> Node:
        return column(name_of(children[0]).name)

    def parenthesis(self, children: list[Node]) -> Node:
        return children[0]

    def element(self, children: list[Node]) -> Node:
        return build(Rank.ELEMENT, (children[0], Rank.ELEMENT), "[", (children[1], Rank.OR), "]")

    def array(self, children: list[Any]) -> Node:
        return build(Rank.SIMPLE, "array[", (children[0], Rank.OR) if children[0] else "", "]")

    def items(self, children: list[Node]) -> Node:
        return build(Rank.ELEMENT, *listed(children), levels=0)

    def when(self, children: list[Node]) -> Node:
        return build(Rank.ELEMENT, " when ", (children[0], Rank.OR), " then ", (children[1], Rank.OR), levels=0)

    def case(self, children: list[Any]) -> Node:
        *whens, otherwise = children
        pieces: list[Piece] = [(when, Rank.ELEMENT) for when in whens if when]
        ending: list[Piece] = [" else ", (otherwise, Rank.OR)] if otherwise else []
        return build(Rank.SIMPLE, "case", *pieces, *ending, " end")

    def case_of(self, children: list[Any]) -> Node:
        first, *whens, otherwise = children
        pieces: list[Piece] = [(when, Rank.ELEMENT) for when in whens if when]
        ending: list[Piece] = [" else ", (otherwise, Rank.OR)] if otherwise else []
        return build(Rank.SIMPLE, "case ", (first, Rank.OR), *pieces, *ending, " end")

    def call(self, children: list[Any]) -> Node:
        name, arguments = children
        return call(name, [(arguments, Rank.OR)] if isinstance(arguments, Node) else [])

    def arguments(self, children: list[Node]) -> Node:
        return build(Rank.ELEMENT, *listed(children), levels=0)

    def named(self, children: list[Any]) -> Node:
        name = name_of(str(children[0]))
        quoted = name.name.replace('"', '""')
        return build(Rank.ELEMENT, (f"{name.text} => ", f'"{quoted}" => '), (children[1], Rank.OR), levels=0)

    def field(self, children: list[Token]) -> Node:
        return string(str(children[0]) if children[0].type == "STRING" else name_of(children[0]).name)

    def extract(self, children: list[Any]) -> Node:
        name, field, source = children
        if (name.name, name.quoted, name.qualified) != ("extract", False, False):
            raise refused(f"{name.text}(… from …) is not allowed: put commas between arguments")
        pieces: list[Piece] = ["extract(", (field, Rank.OR), " from ", (source, Rank.OR), ")"]
        return build(Rank.SIMPLE, *pieces, functions="extract")


class Types(Transformer[Token, Node]):
    """Casts, and names that have a schema."""

    def cast_to(self, children: list[Any]) -> Node:
        node, kind = children
        return build(Rank.CAST, (node, Rank.CAST), (f"::{kind.text}", f"::{kind.sql}"), types=kind.name)

    def typed(self, children: list[Any]) -> Node:
        name, zone, value = children
        return self.cast_to([string(str(value)), type_of(name_of(str(name)), "", str(zone or ""), "")])

    def type(self, children: list[Any]) -> Typed:
        name, length, zone, bounds = children
        return type_of(name, str(length or ""), str(zone or ""), str(bounds))

    def length(self, children: list[Token]) -> str:
        return "".join(children).replace(",", ", ")

    def zone(self, children: list[Token]) -> str:
        return str(children[0])

    def bounds(self, children: list[Token]) -> str:
        return "[]" * len(children)

    def plain_name(self, children: list[Token]) -> Name:
        return name_of(children[0])

    def qualified(self, children: list[Token]) -> Name:
        return name_of(children[1], children[0])
