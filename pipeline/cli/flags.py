"""A flag for each setting, made from its field in `Config`, which has name, type, help and default.

This module also removes secrets from a command line, which other users see in the list of processes and in messages.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from pipeline.config.bucket import LakeBucket
from pipeline.config.settings import SECRETS, Config

_IN_URI = re.compile(r"(://[^:/@\s]*:)\S*@")
_IN_PAIRS = re.compile(r"(password\s*=\s*)(?:'(?:[^'\\]|\\.)*'|[^\s&]+)", re.IGNORECASE)


def name_of(setting: str) -> str:
    """Return the flag of a setting."""
    return f"--{setting.replace('_', '-')}"


SECRET_FLAGS = tuple(name_of(setting) for setting in SECRETS)
"""Flags whose values must not be visible in a list of processes."""


def accepted_by(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command with `**flags` one flag for each setting. Its value is the given text; None if not given."""
    signature = inspect.signature(command, eval_str=True)
    own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    vars(command)["__signature__"] = signature.replace(parameters=[*own, *_flags()])
    return command


def split_arguments(arguments: Sequence[str], command: Any) -> tuple[list[str], list[str]]:
    """Split a command line into the flags of settings, wherever they stand, and the command with its own arguments.

    `command`: the click command of the whole program, which needs the flags of settings first.
    """
    settings, own = _names(command), set[str]()
    first: list[str] = []
    rest: list[str] = []
    left = iter(arguments)
    for argument in left:
        name, equals, _ = argument.partition("=")
        if argument == "--":
            rest += [argument, *left]
        elif name in settings and name not in own:
            taken = [argument] if equals or settings[name] else [argument, *islice(left, 1)]
            first += taken
        else:
            rest.append(argument)
            if (named := getattr(command, "commands", {}).get(argument)) is not None:
                command, own = named, set(_names(named))
            elif getattr(command, "context_settings", {}).get("ignore_unknown_options"):
                own.add("--version")  # of the program that gets these arguments
    return first, rest


def last_value(arguments: Sequence[str], flag: str) -> str | None:
    """Return the value of a flag, the last one if the flag is repeated; None if the arguments do not have it."""
    found, left = None, iter(arguments)
    for argument in left:
        name, equals, text = argument.partition("=")
        if name == flag:
            found = text if equals else next(left, None)
    return found


def _names(command: Any) -> dict[str, bool]:
    """Return the options of a click command by name; True: the option takes no value."""
    return {name: getattr(each, "is_flag", False) for each in command.params for name in each.opts}


def _flags() -> Iterator[inspect.Parameter]:
    for name, setting in Config.model_fields.items():
        kinds = setting.annotation, *get_args(setting.annotation)
        is_path = Path in kinds and LakeBucket not in kinds  # a URL taken for a path loses a slash
        kind: Any = Path | None if is_path else str | None
        annotation = Annotated[kind, typer.Option(name_of(name), help=help_of(name), hidden=True)]
        yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def help_of(setting: str) -> str:
    """Return the help text of a setting: its meaning, and its default if it has one."""
    text, default = str(Config.model_fields[setting].description), Config.model_fields[setting].default
    if isinstance(default, tuple):
        default = ",".join(default)
    shown = f"{default:g}" if isinstance(default, float) else default
    return f"{text[0].upper()}{text[1:]}." + (f" Default: {shown}" if shown not in (None, "", {}) else "")


def without_secrets(arguments: Sequence[str], flags: Collection[str]) -> list[str]:
    """Return the command line with *** for the values of these flags, and for every password in a DSN."""
    shown = [without_passwords(argument) for argument in arguments]
    for place, argument in enumerate(arguments):
        flag, equals, _ = argument.partition("=")
        if flag in flags and equals:
            shown[place] = f"{flag}=***"
        elif argument in flags and place + 1 < len(shown):
            shown[place + 1] = "***"
    return shown


def without_passwords(text: str) -> str:
    """Return the text with *** for every password in a DSN."""
    return _IN_PAIRS.sub(r"\1***", _IN_URI.sub(r"\1***@", text))
