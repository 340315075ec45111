"""Checks that stored positions, sequence and slot agree, and that the server's publications are as it made them."""

from __future__ import annotations

from collections.abc import Mapping

import psycopg

from pipeline.capture.source import publication_form, slots
from pipeline.config.settings import Config
from pipeline.errors import PipelineError
from pipeline.operate.verify.violations import Check, Row
from pipeline.postgres import connections
from pipeline.wal import lsn


def confirmed(config: Config, made: Mapping[str, int], found: Check) -> int | str:
    """The slot's confirmed position, or why it is unknown. Adds to `found` a publication that hides rows.

    `made`: the publications that the server made, name to oid.
    """
    try:
        with connections.connect_promptly(config.source, "source", name="pipeline verify") as source:
            slot = slots.find(source, config.slot)
            if narrowed := publication_form.difference(source, made):
                found.require(False, None, narrowed, "all rows and actions, as the server made it")
    except (PipelineError, psycopg.Error) as error:
        return connections.one_line(error)
    if slot is None or slot.confirmed_lsn is None:
        return f'"{config.slot}" does not exist' if slot is None else f'"{slot.name}" is lost'
    return slot.confirmed_lsn


def check(found: Check, progress: Row, newest: Row | None, slot: str, confirmed: int | str) -> None:
    """`progress` and `newest` (the newest row) were read at one moment, `confirmed` earlier: it never exceeds them."""
    at, stored = lsn.show(progress["commit_lsn"]), lsn.show(progress["position"])
    if progress["epoch"] is not None:
        staged = min(progress["position"], progress["staged_lsn"])
        found.require(staged >= progress["commit_lsn"], None, f"staged up to {lsn.show(staged)}", f"at least {at}")
    if newest is not None:
        wrong = f"the sequence is at {progress['sequence']}"
        found.require(progress["sequence"] >= newest["seq"], newest, wrong, f"at least {newest['seq']}")
    if isinstance(confirmed, str):
        found.not_checked = f"slot: {confirmed}"
    else:
        wrong = f'slot "{slot}" is confirmed up to {lsn.show(confirmed)}'
        found.require(confirmed <= progress["position"], None, wrong, f"at most {stored}, which is stored")
