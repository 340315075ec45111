"""`pipeline init`: a settings file to begin with."""

from __future__ import annotations

from typing import Annotated

import typer

from pipeline.printable import say

Force = Annotated[bool, typer.Option("--force", help="Replace a file that is there.")]


def init(context: typer.Context, force: Force = False) -> int:
    """Write a pipeline.toml with every setting, its meaning and its default, commented out; or the file of --config."""
    from pipeline.config import file, template

    path = context.find_root().params["config"] or file.CONFIG_FILE
    template.write(path, replace=force)
    say(f"wrote {path}: every setting with its default, commented out")
    return 0
