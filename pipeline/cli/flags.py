"""A flag for each setting, made from its field in `Config`, which has name, type, help and default."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from pydantic.fields import FieldInfo

from pipeline.config.settings import SECRETS, Config


def of(setting: str) -> str:
    """The flag of a setting."""
    return f"--{setting.replace('_', '-')}"


SECRET_FLAGS = tuple(of(setting) for setting in SECRETS)
"""Flags whose values must not be visible in a list of processes."""


def accepted_by(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command that takes `**flags` take one for each setting: None when it is not given, else the given text."""
    signature = inspect.signature(command, eval_str=True)
    own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    vars(command)["__signature__"] = signature.replace(parameters=[*own, *_flags()])
    return command


def _flags() -> Iterator[inspect.Parameter]:
    for name, setting in Config.model_fields.items():
        is_path = Path in (setting.annotation, *get_args(setting.annotation))
        kind: Any = Path | None if is_path else str | None
        annotation = Annotated[kind, typer.Option(of(name), help=_help(setting))]
        yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _help(setting: FieldInfo) -> str:
    text = str(setting.description)
    default = f"{setting.default:g}" if isinstance(setting.default, float) else setting.default
    return f"{text[0].upper()}{text[1:]}." + (f" Default: {default}" if default not in (None, ()) else "")
