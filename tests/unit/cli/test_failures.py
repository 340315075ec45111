"""Why `serve` does not start, as a line of its log where that was asked to be JSON; a plain line everywhere else."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.cli import main as cli
from pipeline.server import serve as serving
from tests.fixtures.server import run_command

Failing = Callable[..., str]
WRONG_PORT = ("--http-port", "99999")


@pytest.fixture
def failing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Failing:
    """Runs a command here, which must fail with one line as a wrong use or setting; returns the line."""
    monkeypatch.chdir(tmp_path)
    for module in (cli, serving):
        monkeypatch.setattr(module, "setproctitle", lambda _: None)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(logging.getLogger(), "level", logging.WARNING)

    def run(*arguments: str, log_format: str | None = None) -> str:
        if log_format:
            monkeypatch.setenv("PIPELINE_LOG_FORMAT", log_format)
        monkeypatch.setattr(sys, "argv", ["pipeline", *arguments])
        assert cli.main() == 2
        shown = capsys.readouterr()
        assert shown.out == ""
        assert shown.err.count("\n") == 1, shown.err
        return shown.err

    return run


def assert_logged(line: str, text: str) -> None:
    entry = json.loads(line)
    assert entry.pop("time")
    assert text in entry.pop("message")
    assert entry == {"level": "error", "role": "serve", "action": "serve.failed"}


def assert_plain(line: str, text: str) -> None:
    assert line.startswith("pipeline: ")
    assert text in line


def test_the_environment_asks_for_it(tmp_path: Path) -> None:
    done = run_command("serve", folder=tmp_path, log_format="json", http_port="99999")
    assert (done.returncode, done.stdout) == (2, "")
    assert_logged(done.stderr, "PIPELINE_HTTP_PORT: input should be")


@pytest.mark.parametrize(
    "arguments",
    [
        ("serve", "--log-format", "json", *WRONG_PORT),
        ("--log-format=text", *WRONG_PORT, "--log-format=json", "serve"),
    ],
)
def test_a_flag_asks_for_it(arguments: tuple[str, ...], failing: Failing) -> None:
    assert_logged(failing(*arguments, log_format="text"), "PIPELINE_HTTP_PORT: input should be")


@pytest.mark.parametrize("text", ['[log]\nformat = "json"\n', 'log_format = "json"\n'])
def test_the_settings_file_asks_for_it(text: str, failing: Failing, tmp_path: Path) -> None:
    (tmp_path / "pipeline.toml").write_text("http_port = 0\n" + text)
    assert_logged(failing("serve"), "PIPELINE_HTTP_PORT: input should be")
    (tmp_path / "pipeline.toml").rename("other.toml")
    assert_logged(failing("serve", "--config", "other.toml"), "PIPELINE_HTTP_PORT: input should be")


def test_a_settings_file_that_is_none(failing: Failing, tmp_path: Path) -> None:
    (tmp_path / "pipeline.toml").write_text("slot =")
    assert_plain(failing("serve"), "pipeline.toml is not TOML")
    assert_logged(failing("serve", log_format="json"), "pipeline.toml is not TOML")


def test_wrong_use(failing: Failing) -> None:
    assert_logged(failing("serve", "--only", "nothing", log_format="json"), "'--only'")
    assert_plain(failing("sevre"), "No such command 'sevre'")


@pytest.mark.parametrize("log_format", [None, "auto", "text", "jsno"])
def test_it_was_not_asked_for(log_format: str | None, failing: Failing) -> None:
    """Nor is standard error a terminal: what `auto` makes of the log does not matter before there is one."""
    assert_plain(failing("serve", *WRONG_PORT, log_format=log_format), "PIPELINE_HTTP_PORT: input should be")


@pytest.mark.parametrize("command", ["status", "check", "slots list"])
def test_other_commands_are_for_people(command: str, failing: Failing) -> None:
    line = failing(*command.split(), *WRONG_PORT, log_format="json")
    assert_plain(line, "PIPELINE_HTTP_PORT: input should be")


def test_a_wrong_value_of_an_argument_names_the_right_ones(failing: Failing) -> None:
    assert failing("psql", "nope") == (
        "pipeline: Invalid value for 'database': 'nope' is not one of 'source', 'pipeline'. See `pipeline --help`.\n"
    )
