"""Names of others in what people read: nothing in them breaks a line, moves the cursor or turns the direction."""

from __future__ import annotations

import ast
import io
import json
import logging
import re
import sys
from pathlib import Path

import pytest
from rich.console import Group

from pipeline import logs, printable
from pipeline.demo import screen
from pipeline.terminal import drawing
from pipeline.terminal.bars import TextColumn
from pipeline.terminal.drawing import EscapedConsole, EscapedText

FORGED = 'orders"\n12:00:00.000 error   shuffle     all is lost\r\x1b[2J\u202e\u2066\u2028\u2029\x85\x9b1m\x7f\ud800'
ESCAPED = 'orders"\\n12:00:00.000 error   shuffle     all is lost\\r\\x1b[2J\\u202e\\u2066\\u2028\\u2029\\x85\\x9b1m\\x7f\\ud800'  # noqa: E501
ROOT = Path(__file__).parents[2]
DRAWING = ROOT / "pipeline" / "terminal" / "drawing.py"
CLI = [
    path
    for path in sorted((ROOT / "pipeline").glob("**/*.py"))
    if path != DRAWING
    and "demo" not in path.parts
    and ("cli" in path.parts or "terminal" in path.parts or "from pipeline.terminal" in path.read_text())
]


ALL = "".join(map(chr, [*range(0x3100), *range(0xD7F0, 0xE010), *range(0xFE00, 0x10100), *range(0xE0000, 0xE0100)]))


def test_escaped_text_is_printable_and_printable_text_stays() -> None:
    shown = printable.escaped(ALL)
    assert (shown.isprintable(), printable.escaped(shown)) == (True, shown)


def test_each_kind_of_character_is_escaped() -> None:
    assert printable.escaped(FORGED) == ESCAPED


def test_json_keeps_its_meaning() -> None:
    text = ALL.encode(errors="ignore").decode()
    shown = printable.in_json(json.dumps({"name": text}, ensure_ascii=False))
    assert (shown.isprintable(), json.loads(shown)) == (True, {"name": text})


def test_a_comment_of_sql_has_a_name_as_json_in_ascii() -> None:
    name = ALL.encode(errors="ignore").decode() + FORGED
    shown = printable.in_comment(name)
    assert (shown.isascii() and shown.isprintable(), json.loads(shown)) == (True, name)


def test_sql_of_many_lines_means_the_same_in_one() -> None:
    body = "$body$ -- it's\n select $$\\$$ $body$"
    made = f"create function \"a$b$\"(text)\n RETURNS text\r\n\tAS {body}, $1, $$b'$$, E'\\n'\n"
    shown = "create function \"a$b$\"(text) RETURNS text AS E' -- it''s\\u000a select $$\\\\$$ ', $1, $$b'$$, E'\\n' "
    assert printable.sql_in_one_line(made) == shown
    assert printable.sql_in_one_line(shown) == shown


class TestLog:
    def lines(self, style: str, monkeypatch: pytest.MonkeyPatch, **extra: object) -> list[str]:
        """What the log has of one record with an exception, all of which name a table."""
        stream = io.StringIO()
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setattr(logging.getLogger(), "handlers", [])
        monkeypatch.setattr(logging.getLogger(), "level", logging.WARNING)
        logs.setup("info", style, "shuffle")
        try:
            raise ValueError(FORGED)
        except ValueError:
            logging.getLogger("test").exception("%s is not captured", FORGED, extra=extra)
        return stream.getvalue().split("\n")

    def test_a_text_log_has_one_line_for_a_record(self, monkeypatch: pytest.MonkeyPatch) -> None:
        first, *traceback, last = self.lines("text", monkeypatch, table=FORGED)
        assert first.endswith(f" error   shuffle     {ESCAPED} is not captured table={ESCAPED}")
        assert all(line.startswith("    ") and line.isprintable() for line in traceback)
        assert any("ValueError" in line for line in traceback)
        assert last == ""

    def test_a_json_log_has_the_exact_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        line, last = self.lines("json", monkeypatch, table=FORGED)
        found = json.loads(line)
        assert (found["table"], found["message"], last) == (FORGED, f"{FORGED} is not captured", "")
        assert FORGED in found["exception"]


class TestTerminal:
    def shown(self, *parts: object) -> str:
        console = EscapedConsole(file=io.StringIO(), force_terminal=True, color_system=None, width=1000)
        console.print(*parts)
        assert isinstance(console.file, io.StringIO)
        return console.file.getvalue()

    def test_a_name_stays_in_its_line_and_cell(self) -> None:
        table = drawing.table(("table", ""), [(FORGED, EscapedText(FORGED, "bold")), ("next", drawing.dim(FORGED))])
        for part in (FORGED, EscapedText(FORGED), EscapedText("x").line(FORGED), Group(FORGED), table):
            lines = self.shown(part).removesuffix("\n").split("\n")
            assert all(line.isprintable() for line in lines), lines
            assert any(ESCAPED in line for line in lines), lines

    def test_a_progress_bar_shows_it_escaped(self) -> None:
        task = type("Task", (), {"description": f"[red]{FORGED}"})()
        assert TextColumn("{task.description}").render(task).plain == f"[red]{ESCAPED}"

    def test_lines_are_said_one_by_one(self, capsys: pytest.CaptureFixture[str]) -> None:
        printable.say(FORGED, "second")
        printable.say(FORGED, file=sys.stderr)
        assert capsys.readouterr() == (f"{ESCAPED}\nsecond\n", f"{ESCAPED}\n")

    def test_commands_print_by_nothing_else(self) -> None:
        """JSON, SQL and help may hold line breaks; all else is printed by `say` and by our console."""
        allowed = ("json.dumps(", "in_json(", "statement", "message")
        found = []
        for path in CLI:
            text = path.read_text("utf-8")
            for node in ast.walk(ast.parse(text)):
                called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
                if called in ("print", "sys.stdout.write", "typer.echo", "typer.secho") and isinstance(node, ast.Call):
                    if not any(each in ast.unparse(node.args[0]) for each in allowed):
                        found.append(f"{path.name}: {ast.unparse(node)}")
                elif isinstance(node, ast.ImportFrom) and node.module in ("rich.text", "rich.console", "rich.progress"):
                    names = {each.name for each in node.names} & {"Text", "Console", "TextColumn"}
                    found += [f"{path.name}: {node.module}.{name}" for name in names]
        assert found == []

    def test_nothing_that_is_printed_is_read_as_markup(self, capsys: pytest.CaptureFixture[str]) -> None:
        for console in (screen.console(), drawing.console()):
            console.print("With pip install '.[demo]' in /data/[bold]x[/] :smile:")
        assert capsys.readouterr().out == 2 * "With pip install '.[demo]' in /data/[bold]x[/] :smile:\n"
        marked = re.compile(
            r"from_markup|render_markup|markup=True|\[/?(?:b|bold|dim|red)\]|(?<!class )\bConsole\((?!markup=False).*"
        )
        sources = {path: path.read_text("utf-8") for path in (ROOT / "pipeline").glob("**/*.py")}
        rich = [path for path, text in sources.items() if "rich." in text and path not in CLI]
        assert [(path.name, *marked.findall(sources[path])) for path in rich if marked.search(sources[path])] == []


def test_children_are_told_the_style_of_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for terminal, style in ((True, "text"), (False, "json")):
        monkeypatch.setattr(sys.stderr, "isatty", lambda terminal=terminal: terminal)
        assert (logs.chosen("auto"), logs.chosen("text"), logs.chosen("json")) == (style, "text", "json")
