"""`pipeline init`: a settings file to begin with."""

from __future__ import annotations

from typing import Annotated

import typer

from pipeline.printable import say

Force = Annotated[bool, typer.Option("--force", help="Replace an existing file.")]


def init(context: typer.Context, force: Force = False) -> int:
    """Write pipeline.toml, or the file of --config, with every setting, its meaning and its default, commented out."""
    from pipeline.config import file, template

    path = context.find_root().params["config"] or file.CONFIG_FILE
    template.write(path, replace=force)
    say(f"wrote {path}: every setting with its default, commented out")
    return 0
