"""The help: what `pipeline --help` and `pipeline settings` show, and the examples of the commands."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from pipeline.cli import flags
from pipeline.cli import main as cli
from pipeline.config.settings import Config


def leaves(command: Any, *names: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield all commands that are no groups, with the words that call them."""
    for name, below in command.commands.items():
        if hasattr(below, "commands"):
            yield from leaves(below, *names, name)
        else:
            yield (*names, name), below


COMMANDS = dict(leaves(cli.parser()))


def test_the_help_shows_three_options_and_four_panels() -> None:
    shown = CliRunner().invoke(cli.app, ["--help"]).output
    options = [option.opts[0] for option in cli.parser().params if not option.hidden]
    assert sorted(options) == ["--config", "--version"]
    assert [panel for panel in (cli.START, cli.KEEP, cli.READ, cli.LAKE) if f"─ {panel} ─" not in shown] == []
    assert "Start here: check, serve, status." in shown
    assert "─ Commands ─" not in shown


def test_the_settings_command_shows_each_setting_once() -> None:
    shown = CliRunner().invoke(cli.app, ["settings"]).output.splitlines()
    found = [line.split()[0] for line in shown if line.startswith("  --")]
    assert sorted(found) == sorted(map(flags.name_of, Config.model_fields))


@pytest.mark.parametrize("names", COMMANDS, ids=" ".join)
def test_the_example_of_each_command_can_be_parsed(names: tuple[str, ...]) -> None:
    program, *words = shlex.split(COMMANDS[names].epilog.removeprefix("Example: "))
    before, rest = flags.split_arguments(words, cli.parser())
    assert (program, tuple(rest[: len(names)])) == ("pipeline", names)
    context = cli.parser().make_context("pipeline", [*before, names[0]])
    command = cli.parser()
    for name in names:
        command = command.commands[name]
        context = command.make_context(name, rest[rest.index(name) + 1 :], parent=context)
