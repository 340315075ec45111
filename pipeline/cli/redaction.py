"""What others may see of a command line: in the list of processes, and in messages that repeat an argument."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

_IN_URI = re.compile(r"(://[^:/@\s]*:)\S*@")
_IN_PAIRS = re.compile(r"(password\s*=\s*)(?:'(?:[^'\\]|\\.)*'|[^\s&]+)", re.IGNORECASE)


def without(arguments: Sequence[str], flags: Collection[str]) -> list[str]:
    """A command line without the values of these flags, and without passwords of DSNs wherever they stand."""
    shown = [masked(argument) for argument in arguments]
    for place, argument in enumerate(arguments):
        flag, equals, _ = argument.partition("=")
        if flag in flags and equals:
            shown[place] = f"{flag}=***"
        elif argument in flags and place + 1 < len(shown):
            shown[place + 1] = "***"
    return shown


def masked(text: str) -> str:
    """A text without the passwords of DSNs in it."""
    return _IN_PAIRS.sub(r"\1***", _IN_URI.sub(r"\1***@", text))
