"""Docs are true: names exist, settings and commands appear, relative links lead somewhere."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from pipeline.cli import app
from pipeline.config import Config
from tests.benchmarks.parts import GROUPS, PARTS

ROOT = Path(__file__).parents[2]
DOCS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()
DELIVERY = (ROOT / "docs" / "delivery.md").read_text()
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()
MIGRATIONS = "".join(path.read_text() for path in (ROOT / "alembic" / "versions").glob("*.py"))


def backticked(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


def definitions(path: Path) -> set[str]:
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
            names |= {f"{node.name}.{part.name}" for part in ast.walk(node) if isinstance(part, ast.FunctionDef)}
            names |= {f"{node.name}.{part.name}" for part in ast.walk(node) if isinstance(part, ast.AsyncFunctionDef)}
    return names


@pytest.mark.parametrize(
    "name", sorted({n for n in backticked(ARCHITECTURE) + backticked(DELIVERY) if re.match(r"[\w.]+/", n)})
)
def test_every_place_that_docs_name_exists(name: str) -> None:
    path, _, definition = name.partition(":")
    assert (ROOT / path).exists(), path
    if definition:
        assert definition in definitions(ROOT / path)


@pytest.mark.parametrize(
    "name", sorted({n for n in backticked(ARCHITECTURE) if re.fullmatch(r"(pipeline|public)\.\w+", n)})
)
def test_every_table_named_in_architecture_is_migrated(name: str) -> None:
    assert f"create table {name} (" in MIGRATIONS


def test_architecture_names_every_module_of_the_road() -> None:
    for folder in ("wal", "catalog", "replication", "staging", "shuffle", "events", "operations", "api"):
        assert f"`pipeline/{folder}/" in ARCHITECTURE


@pytest.mark.parametrize("guarantee", ["G1", "G2", "G3", "G4", "G5", "G7", "G8", "G9"])
def test_every_guarantee_is_stated_with_what_holds_it(guarantee: str) -> None:
    statement = re.search(rf"^- \*\*{guarantee} .*?(?=^- |\n\n)", DELIVERY, re.MULTILINE | re.DOTALL)
    assert statement is not None
    assert "`tests/" in statement[0] or "the two tests above" in statement[0]


@pytest.mark.parametrize("name", sorted(Config.model_fields))
def test_every_setting_is_documented_with_its_flag(name: str) -> None:
    assert f"| `PIPELINE_{name.upper()}` | `--{name.replace('_', '-')}` |" in OPERATIONS


def commands() -> Iterator[str]:
    group = typer.main.get_command(app)
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        below = getattr(command, "commands", None)
        yield from [f"{name} {sub}" for sub in below] if below else [name]


@pytest.mark.parametrize("command", sorted(commands()))
def test_every_command_is_documented(command: str) -> None:
    assert f"| `pipeline {command}` |" in OPERATIONS


@pytest.mark.parametrize("path", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text()):
        assert (path.parent / target).exists(), target


def test_every_make_target_that_docs_name_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    targets |= {f"bench-{part}" for part in [*PARTS, *GROUPS]}
    for path in DOCS:
        named = set(re.findall(r"`make ([a-z-]+)`", path.read_text()))
        assert named <= targets, path


def test_every_command_that_the_readme_shows_exists() -> None:
    shown = set(re.findall(r"^\$ pipeline (\w+)", (ROOT / "README.md").read_text(), re.MULTILINE))
    assert shown
    assert shown <= {command.split()[0] for command in commands()}


def test_the_readme_begins_with_what_it_is() -> None:
    first = "\n".join((ROOT / "README.md").read_text().splitlines()[:60])
    for needed in ("make demo", "every change arrived once, in order", "pipeline serve", "sequin_events"):
        assert needed in first
