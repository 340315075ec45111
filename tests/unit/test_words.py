"""Modules have names by the words of docs/internals/words.md, not by those that it tells to avoid."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "internals" / "words.md"
EVERYWHERE = "everywhere"
MARK = "<!-- words: not, but, room -->"


class Avoided(NamedTuple):
    """A word that no module of the room may have as its name."""

    word: str
    instead: str
    room: str


def avoided() -> list[Avoided]:
    """The table after the mark, a line for each word."""
    _, _, after = PAGE.read_text().partition(MARK)
    rows = [line.strip("| ").split(" | ") for line in after.split("\n## ")[0].splitlines() if line.startswith("| `")]
    return [Avoided(word, instead, room) for words, instead, room in rows for word in re.findall(r"`(\w+)`", words)]


def offending(modules: list[Path], words: list[Avoided]) -> list[str]:
    """Modules and folders, relative to `pipeline/` or to `spark/` with that in front, that have an avoided name."""
    return [
        f"{module}: not {each.word} but {each.instead}"
        for module in modules
        for each in words
        if each.word in (part.removesuffix(".py") for part in module.parts)
        and (each.room == EVERYWHERE or module.is_relative_to(each.room))
    ]


def test_each_word_is_told_once_in_a_room():
    words = avoided()
    assert len(words) > 40
    assert [word for word, times in Counter((each.word, each.room) for each in words).items() if times > 1] == []


def test_no_word_is_both_avoided_and_recommended():
    barred = {each.word for each in avoided() if each.room == EVERYWHERE}
    assert barred & {name for each in avoided() for name in re.findall(r"`(\w+)`", each.instead)} == set()


def test_a_word_of_one_room_is_free_in_others():
    words = [Avoided("guard", "`access_guard`", "api"), Avoided("crew", "`worker_pool`", EVERYWHERE)]
    assert offending([Path("capture/guard.py"), Path("api/access_guard.py")], words) == []
    assert len(offending([Path("api/routes/guard.py"), Path("capture/crew.py")], words)) == 2


def test_no_module_has_an_avoided_name():
    modules = [path.relative_to(ROOT / "pipeline") for path in ROOT.glob("pipeline/**/*.py")]
    modules += [path.relative_to(ROOT) for path in ROOT.glob("spark/lake/*.py")]
    assert offending(modules, avoided()) == []
