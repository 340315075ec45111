"""Checks which JSON texts a jsonb column certainly accepts, so that they can be embedded in one."""

from __future__ import annotations

import re

_NUMBER = re.compile(rb"-?(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?")
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_ESCAPE = re.compile(rb"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)
_SUSPECT = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])|[eE][+-]?\d{4}|\d{1000}")
_MAX_DEPTH = 3000
DEEP_SIZE = 20_000
"""Bytes of a text from which nesting is counted: with the default stack depth every server accepts shorter texts."""
_MAX_EXPONENT = 16_000


def is_accepted_by_jsonb(text: bytes) -> bool:
    """True if jsonb certainly accepts this text, which is valid for json; never if jsonb refuses it.

    jsonb refuses `\\u0000`, lone surrogates, numbers beyond numeric's range (src/backend/utils/adt/jsonb.c), and
    nesting beyond the server's stack.
    """
    if _SUSPECT.search(text) is None and text.count(b"[") + text.count(b"{") < _MAX_DEPTH:
        return True
    if is_too_deep(text):
        return False
    bare = _STRING.sub(b"", text)
    return all(_escapes_are_sound(string[0]) for string in _STRING.finditer(text)) and all(
        _fits_numeric(number) for number in _NUMBER.finditer(bare)
    )


def is_too_deep(text: bytes) -> bool:
    """True if the text may be nested too deep for a server with less stack than the source."""
    if len(text) < 2 * _MAX_DEPTH or text.count(b"[") + text.count(b"{") < _MAX_DEPTH:
        return False
    bare = _STRING.sub(b"", text)
    return bare.count(b"[") + bare.count(b"{") >= _MAX_DEPTH


def _escapes_are_sound(text: bytes) -> bool:
    high = -1  # where a high surrogate ended
    for escape in _ESCAPE.finditer(text):
        unit = int(escape[1], 16) if escape[1] else 1
        if high == escape.start():
            if not 0xDC00 <= unit <= 0xDFFF:
                return False
            high = -1
            continue
        if high >= 0 or unit == 0 or 0xDC00 <= unit <= 0xDFFF:
            return False
        if 0xD800 <= unit <= 0xDBFF:
            high = escape.end()
    return high < 0


def _fits_numeric(number: re.Match[bytes]) -> bool:
    whole, fraction, exponent = number.groups()
    power = int(exponent) if exponent and len(exponent) < 9 else 0 if not exponent else _MAX_EXPONENT + 1
    return abs(power) <= _MAX_EXPONENT and len(whole) <= 100_000 and len(fraction or b"") <= 16_000 - max(-power, 0)
