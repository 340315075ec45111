"""`pipeline init`: the settings file that it writes says nothing but the defaults, also without its comment signs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pipeline.config import template
from pipeline.config.settings import SECRETS, Config, load
from tests.fixtures.server import run_command

TEXT = template.text()


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def freed(name: str = r"\w+") -> str:
    """The file without the # in front of this setting, or of all."""
    return re.sub(rf"^#(?={name} = )", "", TEXT, flags=re.MULTILINE)


def test_it_has_every_setting_with_its_description() -> None:
    assert sorted(re.findall(r"^#(\w+) = ", TEXT, re.MULTILINE)) == sorted(Config.model_fields)
    words = " ".join(TEXT.replace("\n# ", " ").split()).lower()
    for name, field in Config.model_fields.items():
        assert f"{field.description}.".lower() in words, name


def test_every_heading_stands_before_a_setting() -> None:
    assert set(template._GROUPS) <= set(Config.model_fields)
    assert TEXT.count("\n# --- ") == len(template._GROUPS)


def test_lines_fit_a_screen() -> None:
    assert max(map(len, TEXT.splitlines())) <= 100


@pytest.mark.parametrize("text", [TEXT, freed()], ids=["as written", "freed"])
def test_it_loads_and_says_the_defaults(text: str, tmp_path: Path) -> None:
    defaults = load().model_dump()
    (tmp_path / "pipeline.toml").write_text(text)
    assert load().model_dump() == defaults


@pytest.mark.parametrize("name", Config.model_fields)
def test_a_setting_may_be_freed_alone(name: str, tmp_path: Path) -> None:
    (tmp_path / "pipeline.toml").write_text(freed(name))
    assert load().model_fields_set == {name}


def test_what_is_changed_counts(tmp_path: Path) -> None:
    changed = freed("http_port").replace("http_port = 12312", "http_port = 8080")
    (tmp_path / "pipeline.toml").write_text(changed)
    assert load().http_port == 8080


@pytest.mark.parametrize("name", template._EXAMPLES)
def test_examples_are_possible(name: str, tmp_path: Path) -> None:
    (tmp_path / "pipeline.toml").write_text(f"{name} = {template._EXAMPLES[name]}")
    assert getattr(load(), name) != Config.model_fields[name].default


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_empty_and_says_where_it_is_better(name: str) -> None:
    part = next(part for part in TEXT.split("\n\n") if f"#{name} = " in part)
    assert part.endswith(f'#{name} = ""')
    assert f"PIPELINE_{name.upper()}_FILE" in part


def test_the_command_writes_it_and_replaces_none_by_itself(tmp_path: Path) -> None:
    done = run_command("init", folder=tmp_path)
    file = tmp_path / "pipeline.toml"
    said = "wrote pipeline.toml: every setting with its default, commented out\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")
    assert file.read_text() == TEXT
    file.write_text("slot = ")  # one that does not even load
    done = run_command("init", folder=tmp_path)
    said = "pipeline: pipeline.toml exists already and was not changed; add --force to replace it\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)
    assert file.read_text() == "slot = "


def test_force_replaces_and_config_names_another(tmp_path: Path) -> None:
    file = tmp_path / "other.toml"
    file.write_text("slot = ")
    done = run_command("init", "--force", "--config", "other.toml", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert file.read_text() == TEXT
    assert not (tmp_path / "pipeline.toml").exists()
