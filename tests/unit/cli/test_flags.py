"""A flag for every setting, made from its one entry in `Config`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pipeline.cli import flags
from pipeline.cli import main as cli
from pipeline.config.settings import Config

OPTIONS: dict[str | None, Any] = {option.name: option for option in cli.parser().params}


@pytest.mark.parametrize("name", sorted(Config.model_fields))
def test_a_setting_has_its_flag_with_its_description_and_default(name: str) -> None:
    option, setting = OPTIONS[name], Config.model_fields[name]
    text = option.help
    assert option.opts == [f"--{name.replace('_', '-')}"]
    assert text.lower().startswith((setting.description or "-").lower())
    if setting.default not in (None, (), "", {}):
        default = ",".join(setting.default) if isinstance(setting.default, tuple) else str(setting.default)
        assert f"Default: {default.removesuffix('.0')}" in text


def test_the_parser_of_all_commands_is_made_once() -> None:
    """The fork server makes it before it forks commands."""
    assert cli.parser() is cli.parser()


def test_flags_of_paths_take_paths_and_the_others_text() -> None:
    paths = {name for name, option in OPTIONS.items() if option.type_descriptor.annotation is Path}
    assert paths == {"config", "data_dir", "http_certificate", "http_key"}  # export_dir may be a URL


@pytest.mark.parametrize(("name", "value"), [("slot", "orders"), ("http_port", 4000), ("export_dir", Path("/lake"))])
def test_what_a_flag_says_outranks_file_and_environment(
    name: str, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text('slot = "a"\nhttp_port = 1\nexport_dir = "b"\n')
    monkeypatch.setenv("PIPELINE_HTTP_PORT", "2")
    found: list[Config] = []
    monkeypatch.setattr("pipeline.logs.setup", lambda *_: None)
    monkeypatch.setattr("pipeline.server.serve.serve", lambda config, *_, **__: found.append(config))
    result = CliRunner().invoke(cli.app, ["--config", str(file), flags.name_of(name), str(value), "serve"])
    assert result.exit_code == 0, result.output
    assert getattr(found[0], name) == value


@pytest.mark.parametrize(
    ("given", "moved"),
    [
        ("status --slot a --json", "--slot a status --json"),
        ("--slot a status --http-port=1", "--slot a --http-port=1 status"),
        ("check --accept tables --config f", "--config f check --accept tables"),
        ("slots list --source-dsn x --orphans", "--source-dsn x slots list --orphans"),
        ("retention -- --slot a", "retention -- --slot a"),
        ("status --slot", "--slot status"),
        ("status --version", "--version status"),
        ("psql --version source", "--version psql source"),
        ("psql source --version --data-dir d", "--data-dir d psql source --version"),
    ],
)
def test_flags_of_settings_may_stand_behind_the_command(given: str, moved: str) -> None:
    first, command = flags.split_arguments(given.split(), cli.parser())
    assert first + command == moved.split()


@pytest.mark.parametrize(
    ("given", "value"),
    [("--slot a --slot b", "b"), ("--slot=a --slot=", ""), ("--slots a", None), ("--slot", None), ("", None)],
)
def test_the_value_of_a_flag_is_its_last(given: str, value: str | None) -> None:
    assert flags.last_value(given.split(), "--slot") == value


def test_values_of_secrets_are_not_in_the_list_of_processes() -> None:
    given = ["--source-dsn", "a", "--database-dsn=b", "--api-token", "c", "--slot", "d", "serve"]
    shown = flags.without_secrets(given, flags.SECRET_FLAGS)
    assert shown == ["--source-dsn", "***", "--database-dsn=***", "--api-token", "***", "--slot", "d", "serve"]
