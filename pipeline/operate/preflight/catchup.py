"""The preflight's part on catch-up: whether more slots could be opened if the worker lagged now."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.capture.catchup import limits
from pipeline.config.settings import Config
from pipeline.findings import Finding, Findings
from pipeline.postgres.connections import Connection
from pipeline.terminal import drawing

NAME = "catch-up"


def run(config: Config, source: Connection, sessions: Sequence[str] = ()) -> Findings:
    """How many slots could read a backlog, and what prevents more. Never an error: one slot always suffices.

    `sessions`: slots of clients' sessions, for which walsenders are kept.
    """
    threshold, setting, cores = config.catchup_bytes, config.catchup_max_slots, limits.cores()
    if threshold is None:
        yield Finding("ok", NAME, "off: a backlog is read by one slot, however large it is")
        return
    room = limits.room_beside(source, config.slot, sessions)
    found = limits.allowed(room, config.slot, setting, cores)
    if found.held_by is None or limits.wanted(setting, cores) == 1:
        readers = "one slot" if found.slots == 1 else f"{found.slots} slots at once"
        yield Finding("ok", NAME, f"a backlog of more than {drawing.size(threshold)} is read by {readers}")
    else:
        why, _, remedy = found.held_by.partition("; ")
        yield Finding("warning", NAME, f"a backlog can be read by {drawing.count(found.slots, 'slot')}: {why}", remedy)
    if (beyond := limits.beyond_cores(setting, cores)) is not None:
        text, _, remedy = beyond.partition("; ")
        yield Finding("warning", NAME, text, remedy)
