"""Completion by Tab in bash, zsh and fish. Typer answers the shells; here is what it cannot know."""

from __future__ import annotations

import os
from typing import Any

PROGRAM = "pipeline"
"""The name that shells complete, whatever the path by which the program was started."""
_VARIABLE = f"_{PROGRAM.upper()}_COMPLETE"


def is_wanted() -> bool:
    """Whether a shell asks what could come next, instead of running a command."""
    return _VARIABLE in os.environ


def let_settings_follow(group: Any, settings: Any = None) -> None:
    """Let all commands of a click group know the settings' flags, which may stand behind them.

    Only for a program that is asked and not run: one that runs finds them in front, where `flags.divided` has put them.
    """
    settings = settings or [each for each in group.params if each.expose_value]
    for command in group.commands.values():
        own = {name for each in command.params for name in each.opts}
        command.params += [each for each in settings if own.isdisjoint(each.opts)]
        if hasattr(command, "commands"):
            let_settings_follow(command, settings)
