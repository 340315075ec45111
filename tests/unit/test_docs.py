"""Docs are true: names exist, settings and commands appear, links lead to pages and headings, no page is too long."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from pipeline.config.settings import Config
from tests.benchmarks import user_page
from tests.benchmarks.parts import GROUPS, PARTS
from tests.fixtures import commands_page, log_actions_page, metrics_page, process_diagram, rest_page, settings_page

ROOT = Path(__file__).parents[2]
DOCS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("spark/*.md")])
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()
INVARIANTS = (ROOT / "docs" / "internals" / "invariants.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
GUARANTEES = (ROOT / "docs" / "internals" / "guarantees.md").read_text()
FACTS = (ROOT / "docs" / "internals" / "postgres-facts.md").read_text()
CHECKLIST = (ROOT / "docs" / "internals" / "sequin-checklist.md").read_text()
SCHEMA = (ROOT / "docs" / "schema.sql").read_text()
PROGRAMS = sorted(
    path for folder in ("pipeline", "spark", "alembic", "tests") for path in ROOT.glob(f"{folder}/**/*.py")
)
LONGEST_PAGE = 250
LONGEST_LINE = 120
README_LINES = 80
USER_PAGE_LINES = 6_500 + 150 + 700
"""Lines of all pages for users without the parts that a program writes, of the console, and of failover and alerts."""


def without_code(text: str) -> str:
    """The page without its blocks of code."""
    return re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)


def backticked(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", without_code(text))


@cache
def definitions(path: Path) -> set[str]:
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
            names |= {f"{node.name}.{part.name}" for part in ast.walk(node) if isinstance(part, ast.FunctionDef)}
            names |= {f"{node.name}.{part.name}" for part in ast.walk(node) if isinstance(part, ast.AsyncFunctionDef)}
    return names


def places(*pages: str) -> list[str]:
    """Paths in the repository that these pages name, some with `:definition`; not those with a placeholder in them."""
    named = {name for page in pages for name in backticked(page) if re.match(r"[\w.]+/", name)}
    return sorted(name for name in named if not re.search(r"[ …<*]|NAME", name))


def exists(place: str) -> bool:
    path, _, definition = place.partition(":")
    return (ROOT / path).exists() and (not definition or definition in definitions(ROOT / path))


def test_every_place_that_docs_name_exists() -> None:
    named = places(ARCHITECTURE, INVARIANTS, GUARANTEES, CONTRIBUTING, FACTS, CHECKLIST)
    assert len(named) > 100
    assert [place for place in named if not exists(place)] == []


def test_each_line_of_a_checklist_names_its_test() -> None:
    _, _, *lines = [line for line in CHECKLIST.splitlines() if line.startswith("|")]
    assert len(lines) > 20
    assert [line for line in lines if not re.search(r"\| `tests/\S+:test_\w+` \|$", line)] == []


@pytest.mark.parametrize(
    "name", sorted({n for n in backticked(ARCHITECTURE + INVARIANTS) if re.fullmatch(r"(pipeline|public)\.\w+", n)})
)
def test_every_table_and_view_named_in_architecture_is_migrated(name: str) -> None:
    assert f"CREATE TABLE {name} (" in SCHEMA or f"CREATE VIEW {name} AS" in SCHEMA


def test_architecture_names_every_module_of_the_road() -> None:
    for folder in sorted(path.parent.name for path in (ROOT / "pipeline").glob("*/__init__.py")):
        assert f"`pipeline/{folder}/" in ARCHITECTURE


def test_every_promise_has_its_tests() -> None:
    promises = set(re.findall(r"^## (G\d+): ", (ROOT / "docs" / "guarantees.md").read_text(), re.MULTILINE))
    held = {
        name for name, _ in re.findall(r"^- \*\*(G\d+) .*\n((?:  - `tests/\S+:test_\w+`\n)+)", GUARANTEES, re.MULTILINE)
    }
    assert promises == held == {f"G{number}" for number in range(1, 12)}


def test_the_page_of_settings_shows_the_settings_of_the_code() -> None:
    assert settings_page.PART.is_current(settings_page.body())
    assert set(settings_page.USES) == set(Config.model_fields)


def test_the_page_of_commands_shows_the_help_of_the_commands() -> None:
    assert commands_page.PART.is_current(commands_page.body())
    assert set(commands_page.NOTES) <= commands_page.names()


def test_the_page_of_log_actions_shows_the_actions_of_the_code() -> None:
    assert log_actions_page.PART.is_current(log_actions_page.body())


def test_the_page_of_metrics_shows_the_metrics_of_the_code() -> None:
    assert metrics_page.PART.is_current(metrics_page.body())


def test_the_page_of_http_shows_the_requests_of_the_api() -> None:
    assert rest_page.PART.is_current(rest_page.body())


def test_relative_links_lead_somewhere() -> None:
    link = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")
    for path in DOCS:
        for target, anchor in link.findall(without_code(path.read_text())):
            page = path.parent / target if target else path
            assert page.exists(), f"{path}: {target}"
            if anchor:
                assert anchor in anchors(page), f"{path}: {target}#{anchor}"


@cache
def anchors(page: Path) -> set[str]:
    """What GitHub makes of the page's headings."""
    headings = re.findall(r"^#+ (.*)$", without_code(page.read_text()), re.MULTILINE)
    shown = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in shown}


def test_no_page_is_too_long_to_read() -> None:
    pages = [
        path for path in DOCS if path.name not in ("benchmarks.md", "commands.md", "log-actions.md", "CHANGELOG.md")
    ]
    assert [path for path in pages if len(path.read_text().splitlines()) > LONGEST_PAGE] == []


def test_the_pages_for_users_together_are_not_too_long() -> None:
    pages = [path for path in DOCS if "internals" not in path.parts and path.is_relative_to(ROOT / "docs")]
    texts = [path.read_text() for path in (ROOT / "README.md", *pages)]
    by_hand = [
        re.sub(r"^<!-- begin: (.*) -->\n(.*\n)*?<!-- end: \1 -->\n", "", text, flags=re.MULTILINE) for text in texts
    ]
    assert sum(len(text.splitlines()) for text in by_hand) <= USER_PAGE_LINES, "say it once, and link to it elsewhere"


def test_lines_of_prose_fit_a_screen() -> None:
    lines = ((path, line) for path in DOCS for line in without_code(path.read_text()).splitlines())
    assert [(path, line) for path, line in lines if is_too_long(line)] == []


def is_too_long(line: str) -> bool:
    """Tables cannot be wrapped, nor can the one name, address or piece of code that a line holds."""
    shown = re.sub(r"`[^`]+`", "code", re.sub(r"^(- |\[[\w-]+\]: )", "", line.strip()))
    return len(line) >= LONGEST_LINE and not shown.startswith("|") and " " in shown


def test_every_page_can_be_reached() -> None:
    links = {
        (page.parent / found).resolve() for page in DOCS for found in re.findall(r"\]\(([^)#:]+)", page.read_text())
    }
    assert set(DOCS) - links <= {ROOT / "README.md", ROOT / "spark" / "README.md"}


def test_every_page_that_programs_name_exists() -> None:
    for program in PROGRAMS:
        for page, anchor in re.findall(r"(docs/[\w/-]+\.(?:md|sql))(?:#([\w-]+))?", program.read_text()):
            assert (ROOT / page).exists(), f"{program}: {page}"
            assert not anchor or anchor in anchors(ROOT / page), f"{program}: {page}#{anchor}"


def test_every_fact_on_postgres_that_programs_name_is_there() -> None:
    facts = set(re.findall(r"^(\d+)\. ", FACTS, re.MULTILINE))
    for program in PROGRAMS:
        named = re.findall(r"postgres-facts\.md (\d+(?:, \d+)*)", program.read_text())
        assert {number for numbers in named for number in numbers.split(", ")} <= facts, program


def test_the_page_of_benchmarks_shows_the_raw_tables() -> None:
    found = user_page.figures()
    assert user_page.PART.is_current(user_page.body(found))
    for name, drawing in user_page.drawings(found).items():
        assert (ROOT / "docs" / name).read_text() == drawing


def test_the_diagram_of_processes_is_current() -> None:
    assert process_diagram.PART.is_current(process_diagram.chart())


def test_every_make_target_that_docs_name_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    targets |= {f"bench-{part}" for part in [*PARTS, *GROUPS]}
    for path in DOCS:
        named = set(re.findall(r"(?:`|^\$ )make ([a-z-]+)(?=[` \n])", path.read_text(), re.MULTILINE))
        assert named <= targets, path


def test_commits_are_checked_with_what_make_check_runs() -> None:
    recipe = re.search(r"^check:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    hooks = set(re.findall(r"\.venv/bin/([\w-]+)", (ROOT / ".pre-commit-config.yaml").read_text()))
    assert hooks == set(re.findall(r"\$\(BIN\)/([\w-]+)", recipe[1]))


def test_every_fact_that_docs_name_by_number_is_there() -> None:
    facts = set(re.findall(r"^(\d+)\. ", FACTS, re.MULTILINE))
    for path in DOCS:
        assert set(re.findall(r"\[fact (\d+)\]", path.read_text())) <= facts, path


def test_every_command_that_the_readme_shows_exists() -> None:
    shown = set(re.findall(r"^\$ pipeline (\w+)", (ROOT / "README.md").read_text(), re.MULTILINE))
    assert shown
    assert shown <= {command.split()[0] for command in commands_page.names()}


def test_the_readme_says_what_it_is_on_one_screen() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= README_LINES
    for needed in ("make demo", "every change arrived once, in order", "pipeline serve", "sequin_events"):
        assert needed in "\n".join(lines)


def test_the_readme_has_the_figures_of_the_benchmarks() -> None:
    _, _, numbers = (ROOT / "README.md").read_text().partition("\n## Numbers")
    figures = re.findall(r"\d[\d,.]*\d", "".join(re.findall(r"^\|.*$", numbers, re.MULTILINE)))
    assert len(figures) > 5
    assert [each for each in figures if each not in (ROOT / "docs" / "benchmarks.md").read_text()] == []
