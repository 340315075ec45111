"""What happens at a fault point, and what has to be prepared for it."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from tests.fixtures.waiting import eventually
from tests.torture.faults.traps import Trap, statement, streamed
from tests.torture.stage import Stage
from tests.torture.writers.script import Script

BATCH = 2_300
"""Rows of the script's large transactions that are more than a staging commit takes half-way, and fill a segment."""
REACHED_WITHIN = 10.0
UNWANTED_WITHIN = 0.5
"""Seconds that a worker gets for a confirmation that it must not make."""
_STORED = r"execute store_batch_\d"


@dataclass(frozen=True)
class Fault:
    """`act` runs while the message is held. With `then`, which runs after it, the message goes on and must do no harm.

    Without it the message never passes: its connection is cut.
    """

    name: str
    act: Callable[[Stage], None]
    then: Callable[[Stage], None] | None = None


def _nothing(stage: Stage) -> None:
    """The cut of the connection is all."""


def _frozen(what: str, role: str) -> Fault:
    return Fault(f"the {what} is frozen and replaced", lambda s: s.outlive(role), lambda s: s.bury(role))


CUT = Fault("the connection is cut", _nothing)
WORKER_KILLED = Fault("the worker is killed", lambda stage: stage.kill("replication"))
SHUFFLER_KILLED = Fault("the shuffler is killed", lambda stage: stage.kill("shuffle"))
SERVER_KILLED = Fault("the server is killed", Stage.kill_server)
LOG_CRASHES = Fault("the pipeline database crashes", Stage.crash_log)
SOURCE_CRASHES = Fault("the source crashes", Stage.crash_source)
BOTH_CRASH = Fault("both databases crash", Stage.crash_both)
WORKER_FROZEN = _frozen("worker", "replication")
SHUFFLER_FROZEN = _frozen("shuffler", "shuffle")


def two_transactions(script: Script) -> None:
    """One of some rows, and others behind it."""
    script.large(5)
    script.small()


def pace(stage: Stage, batches: int, until: Trap) -> None:
    """Let the stream wait for the staging commit after each this many rows, then, at the last of them, for `until`."""
    for number in range(1, batches + 1):
        wait = partial(_wait_staged, stage, number)
        act = wait if number < batches else partial(_wait_staged, stage, number, until)
        stage.rig.source.proxy.arm(Trap("pipeline ", streamed(b"I"), act, nth=BATCH * number))


def _wait_staged(stage: Stage, batches: int, until: Trap | None = None) -> None:
    query = "select max(open_changes) from pipeline.replication_progress"
    with stage.scene.log() as log, suppress(AssertionError):
        eventually(lambda: (log.execute(query).fetchone() or (0,))[0] >= BATCH * (batches - 1) + 1, REACHED_WITHIN)
    if until is not None:
        until.done.wait(REACHED_WITHIN)


def leave_half_staged(stage: Stage) -> None:
    """A worker dies behind a staging commit inside of a large transaction that shares its segment with a whole one."""
    commit = statement("^COMMIT", within=_STORED)
    trap = Trap("pipeline staging", commit, lambda: stage.kill("replication"), nth=2, when="after", then="cut")
    pace(stage, 2, trap)
    stage.rig.log.proxy.arm(trap)
    stage.script.large(3 * BATCH)
    trap.wait()


def fill_the_partition(stage: Stage) -> None:
    """The next event makes another partition necessary."""
    bounds = (
        "select pg_get_expr(c.relpartbound, c.oid) from pg_inherits i join pg_class c on c.oid = i.inhrelid"
        " where i.inhparent = 'public.sequin_events'::regclass"
    )
    with stage.scene.log() as log:
        found = [re.findall(r"\d+", text) for (text,) in log.execute(bounds)]
        lower, upper = max((int(upper), int(lower)) for lower, upper in found)[::-1]
        log.execute("select setval('public.sequin_events_seq_seq', %s)", [(lower + upper) // 2])


def confirmed(stage: Stage) -> int:
    """Up to where the slot is confirmed."""
    query = "select confirmed_flush_lsn - '0/0' from pg_replication_slots where slot_name = %s"
    with stage.scene.source() as source:
        row = source.execute(query, [stage.scene.slot]).fetchone()
    assert row is not None
    return int(row[0])


def see_confirmed(stage: Stage) -> None:
    """Returns once the slot has been confirmed up to the stored position."""
    with stage.scene.log() as log:
        row = log.execute("select max(position) from pipeline.replication_progress").fetchone()
    assert row is not None
    eventually(lambda: confirmed(stage) >= row[0])


def tempt(stage: Stage) -> None:
    """Give a worker that would confirm what it must not the time to do it."""
    before = confirmed(stage)
    with suppress(AssertionError):
        eventually(lambda: confirmed(stage) > before, UNWANTED_WITHIN)
