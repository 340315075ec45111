"""Ask before data is lost forever: print what is lost, and let the user type a name."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Annotated

import typer

from pipeline.errors import ConfigError, PipelineError
from pipeline.printable import escaped, say

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]


def confirm_loss(lost: Iterable[str], name: str, yes: bool) -> None:
    """Print what is lost, and return only if the user types `name`, or if `yes`.

    Raises ConfigError if standard input is no terminal, PipelineError if the user types another text.
    """
    say(*lost)
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError("standard input is not a terminal, so it cannot be confirmed; nothing was changed; add --yes")
    typed = typer.prompt(escaped(f"Type {name} to continue"), prompt_suffix=": ")
    if typed not in (name, escaped(name)):
        raise PipelineError(f'you typed "{typed}", not "{name}"; nothing was changed')
