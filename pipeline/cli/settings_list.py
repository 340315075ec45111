"""`pipeline settings`: what each setting means."""

from __future__ import annotations

import typer

from pipeline.cli import flags
from pipeline.printable import say

_HEAD = """\
Every setting is a flag of all commands, an environment variable (PIPELINE_HTTP_PORT for --http-port) and a key of
pipeline.toml (http_port). A flag overrides the variable, and the variable overrides the file. `pipeline init` writes
a file with all of them.

"""


def settings(context: typer.Context) -> int:
    """Show every setting: its flag, what it means, and its default."""
    from pipeline.config import template

    shown = context.make_formatter()
    for heading, names in template.groups().items():
        with shown.section(heading):
            shown.write_dl([(flags.name_of(name), flags.help_of(name)) for name in names])
    say(*_HEAD.splitlines(), *shown.getvalue().rstrip().splitlines())
    return 0
