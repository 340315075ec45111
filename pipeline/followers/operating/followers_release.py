"""The command `pipeline followers release`: a follower becomes an independent database with all data of the source."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from pipeline.followers.operating.commands import PROGRAM, Name, with_source
from pipeline.printable import say
from pipeline.terminal.command import Json, output

WithSequences = Annotated[
    bool, typer.Option("--sequences", help="Set sequences of its tables past the source's, if they are behind.")
]


def release(context: typer.Context, name: Name, sequences: WithSequences = False, as_json: Json = False) -> int:
    """End a follower for good, once it has everything that is committed at the source.

    Exit 1 if the source was written after that; the command names what came after. If the command was cut off, run it
    again.
    """
    from pipeline.followers.operating import release as release_follower
    from pipeline.followers.operating.render import show_released
    from pipeline.postgres import connections

    with (
        with_source(context) as (config, pipeline),
        connections.connect_promptly(config.source, "source", name=PROGRAM) as source,
    ):
        found = release_follower.release(config, source, pipeline, name, sequences=sequences)
    for warning in found.warnings:
        say(f"warning: {warning}", file=sys.stderr)
    output(found, as_json, lambda: show_released(found))
    return 0 if found.ok else 1
