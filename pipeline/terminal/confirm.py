"""A question before something is lost for ever: what it is, and a name to type."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Annotated

import typer

from pipeline.errors import ConfigError, PipelineError
from pipeline.printable import escaped, say

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


def loss(lost: Iterable[str], name: str, yes: bool) -> None:
    """Say what is lost, and go on only when `name` is typed, or `yes`.

    Raises ConfigError where nobody is there to ask, PipelineError when something else is typed.
    """
    say(*lost)
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError("standard input is not a terminal, so it cannot be confirmed; nothing was changed; add --yes")
    typed = typer.prompt(escaped(f"Type {name} to go on"), prompt_suffix=": ")
    if typed not in (name, escaped(name)):
        raise PipelineError(f"that was not {name}; nothing was changed")
