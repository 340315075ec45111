"""Reads a page of the docs as steps: its fenced blocks, and the comments that say how to run them.

A comment of one line stands before a block, or by itself:

    <!-- not run: needs Docker -->      leave the next block out
    <!-- in: source -->                 the next sql block is for the source, not for the pipeline database
    <!-- type: pipeline -->             type this line where a command of the next block asks
    <!-- exits: 1 -->                   the last command of the next block ends with this status
    <!-- stays -->                      the last command of the next block runs until the page ends, as `pipeline serve`
    <!-- terminal: second -->           type from here on in another terminal, which has no exported variables yet
    <!-- press: Ctrl-C -->              stop what was started last in this terminal, or else in any, and stays
    <!-- given: the example -->         `pipeline serve --example` already runs, and the log has its rows
    <!-- given: own Postgres -->        the server `db` has the database `shop`, and you are its administrator `me`
    <!-- given: a bucket -->            AWS_ENDPOINT_URL is a store that has the empty bucket `lakes`
    <!-- given: a Spark cluster -->     spark://127.0.0.1:7077 is a master with two workers
    <!-- given: $ mkdir exports -->     this command ran before; `pipeline serve` runs already
    <!-- check: nothing is left -->     the server `db` has the same roles, databases, slots and publications as before
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field

BEFORE_A_BLOCK = ("not run", "in", "type", "exits", "stays")
BY_ITSELF = ("terminal", "press", "given", "check")
_MARK = re.compile(rf"<!-- ({'|'.join((*BEFORE_A_BLOCK, *BY_ITSELF))})(?:: (.*?))? -->")
_FENCE = re.compile(r"( *)```(\w*)$")
_FILE = re.compile(r"(?:#|--|//|<!--) ([\w-]+\.(?:py|sql|toml|sh|yml|yaml|json|js|mjs|html))(?: -->)?$")


@dataclass(frozen=True)
class PageMark:
    """A comment that stands by itself."""

    line: int
    kind: str
    value: str


@dataclass(frozen=True)
class FencedBlock:
    """A block of code or of output."""

    line: int
    language: str
    text: str
    marks: dict[str, str] = field(default_factory=dict)
    follows: bool = False
    """True if only blank lines are between this block and the step before it."""

    @property
    def file(self) -> str | None:
        """The name in the comment of the first line: the block is this file and is not run by itself."""
        found = _FILE.match(self.text.split("\n")[0])
        return found[1] if found else None


@dataclass(frozen=True)
class ShownCommand:
    """A command of a console block, and the lines that the page shows below it."""

    line: int
    text: str
    shown: list[str]


def steps(page: str) -> Iterator[PageMark | FencedBlock]:
    """Read the page from its beginning to its end."""
    lines = iter(enumerate(page.splitlines(), 1))
    marks: dict[str, str] = {}
    follows = False
    for number, line in lines:
        if mark := _MARK.fullmatch(line.strip()):
            if mark[1] in BY_ITSELF:
                yield PageMark(number, mark[1], mark[2] or "")
                follows = True
            else:
                marks[mark[1]] = mark[2] or ""
        elif fence := _FENCE.fullmatch(line):
            text = []
            for _, inside in lines:
                if inside == f"{fence[1]}```":
                    break
                text.append(inside)
            yield FencedBlock(number, fence[2], textwrap.dedent("\n".join(text)) + "\n", marks, follows)
            marks, follows = {}, True
        elif line.strip():
            follows = False


def commands(block: FencedBlock) -> list[ShownCommand]:
    """Return the commands of a console block; a line that begins with `> ` continues a command."""
    found: list[ShownCommand] = []
    for number, line in enumerate(block.text.rstrip("\n").split("\n"), block.line + 1):
        if line.startswith("$ "):
            found.append(ShownCommand(number, line[2:], []))
        elif not found:
            raise ValueError(f"line {number}: a console block begins with a command, `$ …`")
        elif not found[-1].shown and (line.startswith("> ") or found[-1].text.endswith("\\")):
            found[-1] = ShownCommand(found[-1].line, f"{found[-1].text}\n{line.removeprefix('> ')}", [])
        else:
            found[-1].shown.append(line)
    return found
