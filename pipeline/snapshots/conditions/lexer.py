"""Cut a condition into tokens as Postgres does (scan.l), and refuse tokens that no condition may have. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lark import Token
from lark.lexer import Lexer, LexerState

from pipeline.errors import ConditionRefusedError
from pipeline.snapshots.conditions import words

LONGEST = 10_000
"""How many characters a condition may have."""
DEEPEST = 100
"""How many levels of nesting a condition may have."""
_PUNCTUATION = {"(": "LPAR", ")": "RPAR", "[": "LSQB", "]": "RSQB", ",": "COMMA", ".": "DOT"}
_PARTS = re.compile(
    r"""(?P<space>[ \t\n\r\f\v]+)
    | (?P<comment>--|/\*)
    | (?P<prefixed>(?:[eEbBxXnN]|[uU]&)'|[uU]&")
    | '(?P<string>(?:[^']|'')*)'
    | (?P<quoted>"(?:[^"]|"")+")
    | (?P<word>[A-Za-z_\x80-\U0010ffff][A-Za-z0-9_$\x80-\U0010ffff]*)
    | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?P<junk>[A-Za-z0-9_.$\x80-\U0010ffff]?))
    | (?P<casts>::)
    | (?P<punctuation>[()\[\],.])
    | (?P<operator>[-+*/<>=~!@\#%^&|`?]+)""",
    re.VERBOSE | re.ASCII,
)
_TOGETHER = {
    ("at", "time", "zone"): "AT_TIME_ZONE",
    ("with", "time", "zone"): "WITH_TIME_ZONE",
    ("without", "time", "zone"): "WITHOUT_TIME_ZONE",
    ("double", "precision"): "NAME",
    ("character", "varying"): "NAME",
    ("char", "varying"): "NAME",
    ("bit", "varying"): "NAME",
}
"""Words that are one token if they follow each other; alone each of them may name a column."""


def refused(sentence: str) -> ConditionRefusedError:
    """Return the error for a condition that is given as text."""
    return ConditionRefusedError(f"--where: {sentence}")


def shown(part: str) -> str:
    """Return a part of a condition on one line, at most 40 characters long, without invisible characters."""
    line = re.sub(r"\s*\n\s*", " ", part)
    seen = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in line[:40])
    return seen if len(line) <= 40 else f"{seen[:39]}…"


class ConditionLexer(Lexer):
    """The lexer for the grammar in condition.lark. Names keep their quotes, strings lose them."""

    __future_interface__ = 1  # lark's newer form of `lex`

    def __init__(self, _conf: object) -> None:
        pass

    def lex(self, lexer_state: LexerState, parser_state: object) -> Iterator[Token]:
        """Yield all tokens of a text. Raises ConditionRefusedError."""
        tokens = list(_cut(lexer_state.text.text))
        _require_flat(tokens)
        _require_own(tokens)
        place = 0
        while place < len(tokens):
            token, length = _joined(tokens, place)
            yield token
            place += length


def _cut(text: str) -> Iterator[Token]:
    place = 0
    while place < len(text):
        found = _PARTS.match(text, place)
        if found is None or found.lastgroup is None:
            raise refused(_stray(text[place:], place))
        kind, part = found.lastgroup, found.group()
        if found["junk"]:
            raise refused(f"the number at {shown(text[place:])} is not allowed: write digits, with a point or an e")
        if kind == "operator":
            part = _operator(part)
        if kind != "space":
            yield _token(kind, part, place)
        place += len(part)


def _token(kind: str, part: str, place: int) -> Token:
    match kind:
        case "comment":
            raise refused(f"a comment ({part}) is not allowed: leave it out")
        case "prefixed":
            raise refused(f"{part}… is not allowed: write strings as '…', where a backslash is a backslash")
        case "string":
            return Token("STRING", part[1:-1].replace("''", "'"), start_pos=place)
        case "word":
            return Token(_word(part), part, start_pos=place)
        case "punctuation":
            return Token(_PUNCTUATION[part], part, start_pos=place)
        case "operator":
            return Token(_rank(part), part, start_pos=place)
        case _:
            return Token({"quoted": "NAME", "casts": "CASTS"}.get(kind, "NUMBER"), part, start_pos=place)


def _word(part: str) -> str:
    word = fold(part)
    if word in words.KEYWORDS:
        return words.KEYWORDS[word]
    if word in words.RESERVED:
        return "RESERVED"
    return "FUNCTION_NAME" if word in words.ONLY_FUNCTIONS else "NAME"


def fold(name: str) -> str:
    """Fold a name without quotes as Postgres does: ASCII only, if letters have several bytes."""
    return "".join(letter.lower() if letter.isascii() else letter for letter in name)


def _operator(run: str) -> str:
    """Return the first operator in a run of operator characters, as Postgres cuts it."""
    comment = re.search(r"--|/\*", run)
    run = run[: comment.start()] if comment else run
    while len(run) > 1 and run[-1] in "+-" and not re.search(r"[~!@#%^&|`?]", run):
        run = run[:-1]
    return run


def _rank(part: str) -> str:
    if part in words.OTHER_OPERATORS:
        return "OTHER"
    ranks = {"COMPARISON": words.COMPARISONS, "SIGN": words.ADDITIONS, "PRODUCT": words.PRODUCTS}
    for name, operators in ranks.items():
        if part in operators:
            return name
    if part in ("^", "=>"):
        return {"^": "POWER", "=>": "NAMES"}[part]
    raise refused(f"the operator {part} is not allowed: only common operators of Postgres itself are")


def _joined(tokens: list[Token], place: int) -> tuple[Token, int]:
    """Return the token at a place, and the number of tokens that it was joined from."""
    here = tokens[place]
    for together, kind in _TOGETHER.items():
        if tuple(fold(token) for token in tokens[place : place + len(together)]) == together:
            return Token(kind, " ".join(together), start_pos=here.start_pos), len(together)
    if (
        here.type == "NAME"
        and fold(here) == "escape"
        and place + 1 < len(tokens)
        and tokens[place + 1].type == "STRING"
    ):
        return Token("ESCAPE", here, start_pos=here.start_pos), 1
    before = [token.type for token in tokens[max(0, place - 2) : place]]
    if fold(here) == "unknown" and (before[-1:] == ["IS"] or before == ["IS", "NOT"]):
        return Token("UNKNOWN", here, start_pos=here.start_pos), 1
    return here, 1


def _require_flat(tokens: list[Token]) -> None:
    depth = 0
    for token in tokens:
        depth += (token.type in ("LPAR", "LSQB", "CASE")) - (token.type in ("RPAR", "RSQB", "END"))
        if depth > DEEPEST:
            raise too_deep()


def _require_own(tokens: list[Token]) -> None:
    """Refuse a name with a schema or table before it, unless the schema is pg_catalog."""
    for place, token in enumerate(tokens):
        if token.type != "DOT" or place == 0 or fold(tokens[place - 1]).strip('"') == "pg_catalog":
            continue
        part = "".join(tokens[place - 1 : place + 2])
        if place + 1 < len(tokens) and tokens[place + 1].type not in ("NAME", "FUNCTION_NAME", "RESERVED"):
            continue  # no name: the grammar refuses it
        if tokens[place + 2 : place + 3] and tokens[place + 2].type == "LPAR":
            raise refused(f"{shown(part)}() is not allowed: only functions of Postgres itself are")
        raise refused(f"{shown(part)} is not allowed: write columns and types by their names alone")


def too_deep() -> ConditionRefusedError:
    return refused(f"it is nested deeper than {DEEPEST} levels: write it flatter")


def _stray(rest: str, place: int) -> str:
    remedies = {
        ";": "; is not allowed: a condition is one expression, not a statement",
        "$": "$ is not allowed: a condition has no parameters, and strings are written as '…'",
        "'": "the string that begins at {part} does not end: close it with '",
        '"': 'the name that begins at {part} does not end, or is empty: close it with "',
    }
    unknown = "{part} (character {place}) is not allowed in a condition: leave it out"
    return remedies.get(rest[0], unknown).format(part=shown(rest[:40]), place=place + 1)
