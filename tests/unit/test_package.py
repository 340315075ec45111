"""What the package says of itself, and that the lines by which people install it work from a checkout."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from pipeline.capture.source import providers

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("**/*.md")]
SOURCES = [*PAGES, *(ROOT / "pipeline").glob("**/*.py")]


def test_the_docs_name_no_package_index_that_lacks_this_package() -> None:
    told = re.compile(rf"pip install [^\n]*{PROJECT['name']}")
    assert [path for path in SOURCES if told.search(path.read_text())] == []


def test_extras_that_people_are_told_to_install_are_there() -> None:
    told = {extra for path in SOURCES for extra in re.findall(r"pip install '\.\[(\w+)\]'", path.read_text())}
    assert {"spark", "demo"} <= told <= set(PROJECT["optional-dependencies"])


def test_a_dependency_whose_inner_modules_are_used_has_an_upper_bound() -> None:
    inner = re.compile(r"^from uvicorn\.(_types|protocols)", re.MULTILINE)
    assert any(inner.search(path.read_text()) for path in SOURCES if path.suffix == ".py")
    (bound,) = [each.partition("<")[2] for each in PROJECT["dependencies"] if each.startswith("uvicorn")]
    installed = metadata.version("uvicorn")
    assert [int(part) for part in installed.split(".")[:2]] < [int(part) for part in bound.split(".")]


def test_the_metadata_says_for_whom_it_is() -> None:
    assert {"Typing :: Typed", "Topic :: Database", "Programming Language :: Python :: 3.11"} <= set(
        PROJECT["classifiers"]
    )
    assert len(set(PROJECT["keywords"])) == len(PROJECT["keywords"]) > 5


def test_the_wheel_has_every_program_that_is_started() -> None:
    wheel = {each.distribution_path for each in WheelBuilder(str(ROOT)).recurse_included_files()}
    texts = [path.read_text() for path in (ROOT / "pipeline").glob("**/*.py")]
    scripts = {found for text in texts for found in re.findall(r'"(\w+\.py)"', text)} & _names(ROOT / "spark")
    modules = {found for text in texts for found in re.findall(r'"-m", "(pipeline[\w.]*)"', text)} - {"pipeline"}
    assert scripts == _names(ROOT / "spark") and len(modules) > 3
    started = {f"pipeline/_spark/{name}" for name in scripts} | {f"{name.replace('.', '/')}.py" for name in modules}
    assert started | {"pipeline/__main__.py", "pipeline/_alembic/env.py"} <= wheel


def test_the_wheel_has_every_sql_file() -> None:
    wheel = {each.distribution_path for each in WheelBuilder(str(ROOT)).recurse_included_files()}
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "pipeline").glob("**/*.sql")}
    assert "pipeline/server/sql/create_example.sql" in files
    assert files <= wheel


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("*.py")}


@pytest.mark.parametrize("provider", providers.PROVIDERS, ids=lambda provider: provider.role)
def test_check_says_of_a_provider_what_the_page_says(provider: providers.PostgresProvider) -> None:
    page = " ".join((ROOT / "docs" / "operate" / "providers.md").read_text().replace("`", "").split())
    row = next(line for line in page.split(" | [") if line.startswith(provider.name.removesuffix(" or Aurora")))
    remedy = provider.logical.removeprefix("set the ").removeprefix("set ")
    assert remedy in row or provider.name == "Supabase"
    assert provider.replication.format(user="user") in row
