"""A helper of a catch-up, as the server starts it: what it reads may become partitions, as the settings say."""

from __future__ import annotations

import sys

from pipeline.capture.catchup import helper
from pipeline.capture.catchup.helper import PartTurn
from pipeline.config.settings import Config
from pipeline.log.table import EventsTable
from pipeline.log.writing.partitioned import part

COMMAND = (sys.executable, "-m", "pipeline.capture.catchup.catch_up")
"""To start it where there is no fork server."""


def main() -> int:
    """Do the task that is the first line of standard input; returns the exit status."""
    return helper.main(_attach)


def _attach(config: Config, turn: PartTurn) -> None:
    threshold = None if config.routes else config.adopt_bytes
    events = EventsTable.parse(config.events_table)
    part.attach(turn.staging, turn.writer, events, threshold, turn.first_seq, turn.give_up, turn.stopping)


if __name__ == "__main__":
    sys.exit(main())
