"""The wires, which are protocols of other systems that the server can speak, by their names in the settings. Pure."""

from __future__ import annotations

import difflib

WIRES = {"pgdeltastream": "PG Delta Stream", "walstream": "walstream", "sequin": "Sequin"}
"""Each wire that can be served, and the system whose clients speak it."""

WITH_SLOTS = ("pgdeltastream",)
"""Wires whose sessions are slots at the source."""

OVER_GRPC = ("walstream",)
"""Wires that are served at PIPELINE_GRPC_PORT; all others are served at PIPELINE_HTTP_PORT."""


def with_slots(given: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of the given wires that make a slot at the source for each session."""
    return tuple(name for name in given if name in WITH_SLOTS)


def names(value: tuple[str, ...]) -> tuple[str, ...]:
    """Check the names of wires, and return them without repetitions. Raises ValueError, which lists all wires."""
    for name in value:
        if name not in WIRES:
            near = difflib.get_close_matches(str(name).lower(), WIRES, 1, 0.5)
            guess = f"did you mean {near[0]}? " if near else ""
            raise ValueError(f"unknown wire {name!r}; {guess}there are: {', '.join(WIRES)}")
    return tuple(dict.fromkeys(value))


def unserved(wanted: tuple[str, ...], served: tuple[str, ...]) -> str | None:
    """Return an error text on names in PIPELINE_OPEN_WIRES that PIPELINE_WIRES lacks; None: it has all of them."""
    missing = [name for name in wanted if name not in served]
    if not missing:
        return None
    return (
        f"PIPELINE_OPEN_WIRES names {', '.join(missing)}, which PIPELINE_WIRES does not serve: "
        "add it there, or leave it out here"
    )
