"""Compares what a page shows with what a program prints.

Numbers, times, LSNs, identifiers and padding may differ. A line `…` stands for any lines, `…` in a line for any text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_SAME = (
    (r"\x1b\[[0-9;?]*[A-Za-z]", ""),
    (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "#"),
    (r"\b\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d)?(\.\d+)?)?( ?(Z|UTC|[+-]\d\d(:?\d\d)?))?", "#"),
    (r"\b[0-9A-F]{1,8}/[0-9A-F]{1,8}\b", "#"),
    (r"\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b", "#"),
    (r"(?<![A-Za-z])\d+(,\d{3})*(\.\d+)?", "#"),
    (r"# ?(bytes|[kKMGT]?B)\b", "# B"),
    (r"#( ?(µs|ms|s|min|h|d)\b)( # ?(ms|s|min|h)\b)*", "# s"),
    (r"# (\w{3,}?)s\b", r"# \1"),
    (r"\s+", " "),
    (r"^ ?[-+|:=─━┼│ ]*[-=─━]{2}[-+|:=─━┼│ ]*$", "---"),
)
_EACH = [(re.compile(pattern), to) for pattern, to in _SAME]
ANY = "…"


def plain(text: str) -> list[str]:
    """Return the lines without what may differ; blank lines are left out."""
    lines = []
    for line in text.splitlines():
        for pattern, to in _EACH:
            line = pattern.sub(to, line)
        if line.strip():
            lines.append(line.strip())
    return lines


def difference(shown: Sequence[str], printed: str) -> str | None:
    """Return how the output differs from what the page shows; None if it does not, or if the page shows nothing."""
    wanted, found = plain("\n".join(shown)), "".join(f"{line}\n" for line in plain(printed))
    if not wanted or re.fullmatch(_pattern(wanted), found):
        return None
    good = next(count for count in range(len(wanted), -1, -1) if re.match(_pattern(wanted[:count]), found))
    missing = f"does not print: {wanted[good]}" if good < len(wanted) else "prints more than the page shows"
    return f"{missing}\nIt prints, without what may differ:\n{found}"


def _pattern(lines: Sequence[str]) -> str:
    return "".join(
        r"(?:.*\n)*?" if line == ANY else f"{'.*'.join(map(re.escape, line.split(ANY)))}\n" for line in lines
    )
