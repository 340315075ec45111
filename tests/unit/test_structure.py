"""The house stays readable: files, functions and classes of the product and the lake are small enough to be read."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = sorted(path for code in ("pipeline", "spark") for path in (ROOT / code).glob("**/*.py"))
PURE = re.compile(r"\bPure[.:]")
FILE_LINES, FUNCTION_LINES, METHODS = 400, 40, 18
LONGER_FILES: dict[str, str] = {}
"""Files that are longer, and why."""
LONGER: dict[tuple[str, str], str] = {}
"""Functions that are longer, and why."""
WIDER = {
    ("spark/lake/ledger.py", "LakeLedger"): "a method for each statement of the lake's rows, on one session",
    ("spark/lake/states/ledger.py", "StateLedger"): "a method for each statement of the states' rows, on that session",
}
"""Classes with more methods, and why."""


def too_large(path: Path) -> Iterator[str]:
    """What of a file is larger than a reader takes in."""
    text = path.read_text("utf-8")
    name = path.relative_to(ROOT).as_posix()
    if (lines := text.count("\n")) > FILE_LINES and name not in LONGER_FILES:
        yield f"{name}: {lines} lines"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            if lines > FUNCTION_LINES and (name, node.name) not in LONGER:
                yield f"{name}: {node.name} has {lines} lines"
        elif isinstance(node, ast.ClassDef):
            methods = sum(isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) for part in node.body)
            if methods > METHODS and (name, node.name) not in WIDER:
                yield f"{name}: {node.name} has {methods} methods"


def test_files_functions_and_classes_can_be_read_at_once() -> None:
    assert [each for path in FILES for each in too_large(path)] == []


def test_a_module_that_calls_itself_pure_is_held_to_it() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    held = {module for each in contracts if "pure" in each["name"] for module in each["source_modules"]}
    texts = {path: path.read_text("utf-8") for path in FILES if path.is_relative_to(ROOT / "pipeline")}
    docs = {path: ast.get_docstring(ast.parse(text)) or "" for path, text in texts.items() if PURE.search(text)}
    pure = [path for path, text in docs.items() if PURE.search(text)]
    assert len(pure) > 10
    names = [path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".") for path in pure]
    assert [name for name in names if name not in held] == []


def test_what_may_be_longer_is_there_and_longer() -> None:
    assert [name for name in LONGER_FILES if (ROOT / name).read_text("utf-8").count("\n") <= FILE_LINES] == []
    for name, function in LONGER:
        nodes = ast.walk(ast.parse((ROOT / name).read_text("utf-8")))
        found = [node for node in nodes if isinstance(node, ast.FunctionDef) and node.name == function]
        assert any((node.end_lineno or 0) - node.lineno + 1 > FUNCTION_LINES for node in found)
