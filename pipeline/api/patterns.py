"""The patterns that texts in requests must match, and a plain sentence for each, which errors show instead."""

from __future__ import annotations

import re

NAME = r"^[A-Za-z0-9_.-]{1,63}$"
NO_ZERO_BYTE = r"^[^\x00]*$"
START = r"^(now|beginning|[0-9]{1,18})$"
TABLES = r"^\s*[^.,\x00]*\.[^.,\x00]+(\s*,\s*[^.,\x00]*\.[^.,\x00]+)*\s*$"
_ACTION = r"\s*(insert|update|delete|truncate|read|message)\s*"
ACTIONS = rf"^{_ACTION}(,{_ACTION})*$"

SENTENCES = {
    NAME: "expected 1 to 63 of the letters A-Z a-z, digits, `_`, `.` and `-`",
    NO_ZERO_BYTE: "a text may not hold a zero byte",
    START: "expected `now`, `beginning`, or a seq to begin after",
    ACTIONS: "expected some of insert, update, delete, truncate, read and message",
    TABLES: "name tables as schema.table, for example public.orders",
}
"""The sentence of each pattern: what the server expects of a text that does not match."""
SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a surrogate pair, which JSON can hold, but UTF-8 and Postgres cannot."""
NO_SURROGATE = "a text may not hold half of a surrogate pair"
