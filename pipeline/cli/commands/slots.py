"""`pipeline slots`: the replication slots at the source."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.printable import say
from pipeline.terminal import confirm
from pipeline.terminal.command import Json, load, output
from pipeline.terminal.confirm import Yes

if TYPE_CHECKING:
    from pipeline.config.settings import Config
    from pipeline.postgres.connections import Connection

app = typer.Typer(help="The replication slots at the source.", no_args_is_help=True)


_NAME = typer.Argument(help="The name of the slot.")
SlotName = Annotated[str, _NAME]
OptionalSlotName = Annotated[str | None, _NAME]
Orphans = Annotated[
    bool, typer.Option("--orphans", help="List only copies of our slot that no part of a backlog needs.")
]


@app.command("list", epilog="Example: pipeline slots list --orphans")
def slots_list(context: typer.Context, as_json: Json = False, orphans: Orphans = False) -> int:
    """List logical slots of the source: their owners, their readers, and the WAL that they hold back."""
    from pipeline.cli.render import slots

    found = _orphaned_slots(context) if orphans else _owned_slots(context)
    none = "no orphaned slots at the source" if orphans else "no logical slots at the source"
    output({"data": found}, as_json, lambda: slots.show(found, none))
    return 0


@app.command("create", epilog="Example: pipeline slots create spare")
def slots_create(context: typer.Context, name: OptionalSlotName = None) -> int:
    """Create a slot (default: PIPELINE_SLOT), which keeps all changes committed from now on.

    For PIPELINE_SLOT, also create what must exist first: the tables of the pipeline database and the publications.
    """
    from pipeline.capture.source import slots
    from pipeline.wal import lsn

    ours = load(context, "slots").slot
    chosen = name or ours
    if chosen == ours:
        start = _create_ours(context)
    else:
        start = _with_source(context, lambda source: slots.create(source, chosen))
    say(f'slot "{chosen}" created; it streams from {lsn.show(start)}')
    return 0


def _create_ours(context: typer.Context) -> int:
    from pipeline.capture.replication import prepare
    from pipeline.capture.source import slots
    from pipeline.postgres import databases
    from pipeline.server import serve

    with databases.existing(load(context, "slots")) as config:
        source, pipeline = prepare.connect(config, name="pipeline slots")
        with source, pipeline:
            slots.require_absent(source, config.slot)
            serve.boot(config)
            return prepare.create_slot(config, source, pipeline)


Force = Annotated[bool, typer.Option("--force", help="Delete the slot even if this server reads it.")]


@app.command("delete", epilog="Example: pipeline slots delete spare --yes")
def slots_delete(context: typer.Context, name: SlotName, force: Force = False, yes: Yes = False) -> int:
    """Delete a slot; the source then removes WAL that nothing else needs. Asks you to type the slot's name.

    If the slot belongs to a client's session, that session ends.
    """
    from pipeline.capture.source import slots
    from pipeline.cli.render import losses
    from pipeline.errors import ConfigError

    ours = load(context, "slots").slot == name
    if ours and not force:
        raise ConfigError(f'slot "{name}" is the one that the server reads (PIPELINE_SLOT); add --force to delete it')

    def act(config: Config, source: Connection, pipeline: Connection | None) -> str:
        if not ours and pipeline is not None and _end_session(config, source, pipeline, name, yes):
            return f'slot "{name}" deleted, and its session ended'
        confirm.confirm_loss(losses.slot(slots.require_idle(source, name), ours), name, yes)
        slots.drop(source, name)
        return f'slot "{name}" deleted'

    with _connected_to_both(context) as (config, source, pipeline):
        say(act(config, source, pipeline))
    return 0


def _end_session(config: Config, source: Connection, pipeline: Connection, name: str, yes: bool) -> bool:
    """End the session that owns this slot, once the user agrees; False if no session owns it."""
    from pipeline.capture.source import slots
    from pipeline.cli.render import losses
    from pipeline.operate import slot_owners
    from pipeline.wires.pgdeltastream.sessions import bounds

    found = [slot for slot in slots.all_slots(source) if slot.name == name]
    session = slot_owners.sessions(source, pipeline, config.source_id, found).get(name)
    if session is None:
        return False
    confirm.confirm_loss(losses.session(session, found[0] if found else None), name, yes)
    bounds.end(config, source, pipeline, session, "its slot was deleted by `pipeline slots delete`")
    return True


def _owned_slots(context: typer.Context) -> list[Any]:
    """Return all slots with their owners; if the pipeline database does not answer, warn that some are unknown."""
    from pipeline.capture.source import slots
    from pipeline.operate import slot_owners

    with _connected_to_both(context) as (config, source, pipeline):
        found = slots.all_slots(source)
        known = None if pipeline is None else slot_owners.sessions(source, pipeline, config.source_id, found)
    listed = slot_owners.owned(found, config.slot, known)
    if any(slot.whose is None for slot in listed):
        say("the pipeline database does not answer, so slots of sessions cannot be recognized", file=sys.stderr)
    return listed


def _orphaned_slots(context: typer.Context) -> list[Any]:
    """Return the copies of our slot that read no part of a backlog now, according to the pipeline database."""
    from pipeline.capture.catchup import orphans
    from pipeline.postgres import connections, databases

    with (
        databases.existing(load(context, "slots")) as config,
        connections.connect_promptly(config.source, "source", name="pipeline slots") as source,
        connections.connect_promptly(config.database, "pipeline database", name="pipeline slots") as pipeline,
    ):
        return orphans.find_orphans(source, config.slot, orphans.find_working(pipeline, config.source_id))


def _with_source(context: typer.Context, act: Callable[[Any], Any]) -> Any:
    """Call `act` with a connection to the source; needs no pipeline database when the source's DSN is given."""
    from pipeline.postgres import connections, databases

    given = load(context, "slots")
    with (
        nullcontext(given) if given.source_dsn else databases.existing(given) as config,
        connections.connect_promptly(config.source, "source", name="pipeline slots") as source,
    ):
        return act(source)


@contextmanager
def _connected_to_both(context: typer.Context) -> Iterator[tuple[Config, Connection, Connection | None]]:
    """Yield the settings, the source, and the pipeline database; None for one that is missing or does not answer."""
    from pipeline.errors import PipelineError
    from pipeline.postgres import connections, databases

    given = load(context, "slots")
    with ExitStack() as stack:
        config, pipeline = given, None
        try:
            config = stack.enter_context(databases.existing(given))
        except PipelineError:
            if config.source_dsn is None:
                raise
        name = "pipeline slots"
        source = stack.enter_context(connections.connect_promptly(config.source, "source", name=name))
        with suppress(PipelineError):
            found = connections.connect_promptly(config.database, "pipeline database", name=name)
            pipeline = stack.enter_context(found)
        yield config, source, pipeline
