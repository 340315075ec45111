"""From the text of a condition to its writings; pure. What has no rule in condition.lark is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from importlib.resources import files
from typing import Any, cast

from lark import Lark, Token, Transformer, UnexpectedInput, UnexpectedToken
from lark.exceptions import VisitError

from pipeline.capture.snapshot.condition_lexer import ConditionLexer, refused, shown
from pipeline.capture.snapshot.condition_nodes import (
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
from pipeline.errors import ConditionRefused


def parsed(text: str) -> Node:
    """Raises ConditionRefused with the part that is not allowed."""
    try:
        return cast(Node, _parser().parse(text))
    except VisitError as error:
        if isinstance(error.orig_exc, ConditionRefused):
            raise error.orig_exc from None
        raise
    except UnexpectedInput as error:
        raise refused(_explanation(text, error)) from None


def listed(parts: list[Node]) -> list[Piece]:
    """Between commas."""
    pieces: list[Piece] = []
    for part in parts:
        pieces += [", ", (part, Rank.OR)]
    return pieces[1:]


@cache
def _parser() -> Lark:
    grammar = files(__package__).joinpath("condition.lark").read_text("utf-8")
    # strict: where the grammar leaves a choice, it does not load
    return Lark(grammar, parser="lalr", lexer=ConditionLexer, transformer=_Builder(), strict=True)


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


class _Builder(Transformer[Token, Node]):
    """A method for each rule of the grammar; the parser calls it as soon as a rule is complete."""

    disjunction, conjunction = _chain(Rank.OR, "or"), _chain(Rank.AND, "and")
    negation = _around(Rank.NOT, "not ", Rank.NOT)
    is_null, is_not_null = _compared(_LEFT, " is null"), _compared(_LEFT, " is not null")
    is_distinct = _compared(_LEFT, " is distinct from ", _RIGHT)
    is_not_distinct = _compared(_LEFT, " is not distinct from ", _RIGHT)
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
    quantified = _quantified(Rank.COMPARED, Rank.RANGED)
    quantified_other = _quantified(Rank.OTHER, Rank.OTHER)
    like_quantified = _quantified(Rank.RANGED, Rank.OTHER)

    def is_state(self, children: list[Node]) -> Node:
        return build(Rank.IS, (children[0], _LEFT), f" is {children[1]}")

    def is_not_state(self, children: list[Node]) -> Node:
        return build(Rank.IS, (children[0], _LEFT), f" is not {children[1]}")

    def state(self, children: list[Token]) -> str:
        return children[0].lower()

    def is_in(self, children: list[Node]) -> Node:
        return build(Rank.RANGED, (children[0], _OPERAND), " in (", (children[1], Rank.OR), ")")

    def is_not_in(self, children: list[Node]) -> Node:
        return build(Rank.RANGED, (children[0], _OPERAND), " not in (", (children[1], Rank.OR), ")")

    def items(self, children: list[Node]) -> Node:
        return build(Rank.ELEMENT, *listed(children))

    def like(self, children: list[Token]) -> str:
        return " ".join(_words(child) for child in children)

    def like_escape(self, children: list[Node]) -> Node:
        first, word, second, escape = children
        pieces: list[Piece] = [(first, _OPERAND), f" {word} ", (second, _OPERAND), " escape ", (escape, _OPERAND)]
        return build(Rank.RANGED, *pieces)

    def sign(self, children: list[Node]) -> Node:
        return build(Rank.SIGNED, str(children[0]), (children[1], Rank.CAST))

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

    def number(self, children: list[Token]) -> Node:
        return build(Rank.SIMPLE, children[0].lower())

    def string(self, children: list[Token]) -> Node:
        return string(str(children[0]))

    def constant(self, children: list[Token]) -> Node:
        return build(Rank.SIMPLE, children[0].lower())

    moment = constant

    def array(self, children: list[Any]) -> Node:
        return build(Rank.SIMPLE, "array[", (children[0], Rank.OR) if children[0] else "", "]")

    def parenthesis(self, children: list[Node]) -> Node:
        return children[0]

    def element(self, children: list[Node]) -> Node:
        return build(Rank.ELEMENT, (children[0], Rank.ELEMENT), "[", (children[1], Rank.OR), "]")

    def column(self, children: list[Token]) -> Node:
        return column(name_of(children[0]).name)

    def when(self, children: list[Node]) -> Node:
        return build(Rank.ELEMENT, " when ", (children[0], Rank.OR), " then ", (children[1], Rank.OR))

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
        return self.items(children)

    def named(self, children: list[Any]) -> Node:
        name = name_of(str(children[0]))
        quoted = name.name.replace('"', '""')
        return build(Rank.ELEMENT, (f"{name.text} => ", f'"{quoted}" => '), (children[1], Rank.OR))

    def plain_name(self, children: list[Token]) -> Name:
        return name_of(children[0])

    def qualified(self, children: list[Token]) -> Name:
        return name_of(children[1], children[0])

    def field(self, children: list[Token]) -> Node:
        return string(str(children[0]) if children[0].type == "STRING" else name_of(children[0]).name)

    def extract(self, children: list[Any]) -> Node:
        name, field, source = children
        if (name.name, name.quoted, name.qualified) != ("extract", False, False):
            raise refused(f"{name.text}(… from …) is not allowed: put commas between arguments")
        pieces: list[Piece] = ["extract(", (field, Rank.OR), " from ", (source, Rank.OR), ")"]
        return build(Rank.SIMPLE, *pieces, functions="extract")
