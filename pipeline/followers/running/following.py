"""What an applier does while its follower is wanted: apply, wait for more, stop before what cannot be applied.

Nothing ends it but the end of its follower's row: what stopped it is tried again, later and later, so that it goes on
by itself once the cause is gone.
"""

from __future__ import annotations

import logging
import time
from contextlib import closing

import psycopg

from pipeline.config.settings import Config
from pipeline.errors import Overtaken, PipelineError
from pipeline.followers import connecting, registry
from pipeline.followers.applying import position
from pipeline.followers.applying.applier import Applier
from pipeline.followers.copying import passed
from pipeline.followers.copying.table_copies import Interrupted
from pipeline.followers.registry import Follower, FollowerTable, Report, State, TableName
from pipeline.followers.running import beginning, remedies
from pipeline.log.table import CHANNEL, EventsTable
from pipeline.postgres import connections, session_settings
from pipeline.postgres.connections import Connection
from pipeline.process.signals import Stop

logger = logging.getLogger(__name__)

REPORT_SECONDS = 0.5
"""How often it is stored how far the follower is, and looked whether it is still wanted."""
IDLE_SECONDS = 1.0
"""How long to wait for a notification of new events."""
FIRST_DELAY, LONGEST_DELAY = 0.5, 30.0
"""Seconds before what stopped it is tried again; each failure in a row doubles them."""
_ITSELF = "it goes on by itself"


class Following:
    """One follower. `log` is read; over `state` it is stored how the follower is, and heard that there is more."""

    def __init__(self, config: Config, log: Connection, state: Connection, follower: int, name: str) -> None:
        """`follower`: the id of its row, which another one of that name would not have."""
        self._config, self._log, self._state, self._id, self._name = config, log, state, follower, name
        self._said: Report | None = None
        self._said_at = 0.0
        self._delay = FIRST_DELAY
        self._said_tables = dict[int, FollowerTable]()

    def run(self, stop: Stop) -> None:
        """Until told to stop, or until the follower was removed. Raises psycopg.Error of the pipeline database."""
        self._state.execute(f"listen {CHANNEL}".encode())
        while not stop and (found := self._find()) is not None:
            if found.wanted == "paused":
                self._say(Report("paused"))
                stop.wait(IDLE_SECONDS)
                continue
            try:
                self._follow(found, stop)
            except (PipelineError, psycopg.Error) as error:
                if isinstance(error, psycopg.Error) and (
                    connections.is_ours(error) or self._log.broken or self._state.broken
                ):
                    raise
                if isinstance(error, Overtaken):  # whoever moved the position may have taken away what was in the way
                    self._delay = FIRST_DELAY
                self._stopped(found, error)
                self._rest(stop)

    def _find(self) -> Follower | None:
        return next((each for each in registry.find(self._state, self._name) if each.id == self._id), None)

    def _follow(self, found: Follower, stop: Stop) -> None:
        """While it is wanted. Raises what stops it."""
        options = {"settings": session_settings.FOLLOWER}
        with connecting.connect(found.name, found.dsn, program="pipeline applier", **options) as follower:
            position.install(follower)
            beginning.begin(self._log, follower, found)
            try:
                self._copy(follower, found, stop)
            except Interrupted:
                return
            self._apply(follower, found, stop)

    def _copy(self, follower: Connection, found: Follower, stop: Stop) -> None:
        """What is to be copied and is not. Raises Interrupted where that is not wanted any more, and what stops it."""

        def say(table: TableName, reason: str | None) -> None:
            self._say_table(table, "copying", reason)

        def go_on() -> bool:
            return not stop and self._is_wanted(Report("copying"))

        beginning.copy(self._config, self._log, follower, found, stop, go_on, say)

    def _apply(self, follower: Connection, found: Follower, stop: Stop) -> None:
        """Until it is not wanted any more, or is past its last copy: then nothing is left out any longer."""
        events = EventsTable.parse(self._config.events_table)
        wanted = beginning.wanted_tables(self._log, follower, found)
        copied = {oid: each.copied for oid, each in wanted.items() if each.copied is not None}
        applier = Applier(
            self._log, follower, found.source_id, found.name, wanted, events_table=events, connect=self._connect
        )
        for table in found.table_states:
            self._say_table(table, "copying" if table.table_oid in copied else "following")
        with closing(applier):
            while not stop and self._is_wanted(_report_of(applier, "copying" if copied else "following")):
                if (applied := applier.apply()) is None:
                    self._hear()
                else:
                    self._delay = FIRST_DELAY
                    logger.debug("applied", extra={"action": "follower.applied", "seq": applied.seq})
                if copied and not passed.outstanding(self._log, applier.position, copied):
                    return

    def _connect(self) -> Connection:
        """To read ahead of what is written."""
        return connections.connect(self._config.database, "pipeline database", name="pipeline applier ahead")

    def _is_wanted(self, said: Report) -> bool:
        """Say how far it is, and look whether somebody wants something else; both now and then."""
        if time.monotonic() < self._said_at + REPORT_SECONDS:
            return True
        self._say(said)
        found = self._find()
        return found is not None and found.wanted == "running"

    def _say_table(self, table: TableName, state: str, reason: str | None = None) -> None:
        """Say what is with a table, once."""
        said = FollowerTable(table.table_oid, table.table_schema, table.table_name, state, reason, reason and _ITSELF)
        if self._said_tables.get(table.table_oid) != said:
            registry.report_tables(self._state, self._id, [said])
            self._said_tables[table.table_oid] = said
            if reason is not None:
                extra = {"action": "follower.copy_waits"}
                logger.info("%s: table %s.%s %s", self._name, table.table_schema, table.table_name, reason, extra=extra)

    def _hear(self) -> None:
        """Wait for new events, or for a while."""
        for _ in self._state.notifies(timeout=IDLE_SECONDS, stop_after=1):
            pass

    def _say(self, said: Report) -> None:
        registry.report(self._state, self._id, said)
        if self._said is not None and (said.state, said.reason) != (self._said.state, self._said.reason):
            log = logger.info if said.state in ("following", "paused") else logger.warning
            log("%s: %s", self._name, said.reason or said.state, extra={"action": f"follower.{said.state}"})
        self._said, self._said_at = said, time.monotonic()

    def _stopped(self, found: Follower, error: Exception) -> None:
        self._say(remedies.report_of(found, error))

    def _is_as_said(self, found: Follower) -> bool:
        """Whether its row still has what we have last said: a command that takes away what stopped it says so there."""
        return self._said is None or (found.state, found.reason) == (self._said.state, self._said.reason)

    def _rest(self, stop: Stop) -> None:
        """Before it is tried again; ends early where it is paused or removed, or who changed something has said so."""
        until = time.monotonic() + self._delay
        self._delay = min(2 * self._delay, LONGEST_DELAY)
        while time.monotonic() < until and not stop.wait(min(IDLE_SECONDS, self._delay)):
            if (found := self._find()) is None or not self._is_as_said(found):
                return
            if found.wanted == "paused":
                return


def _report_of(applier: Applier, state: State) -> Report:
    here = applier.position
    return Report(state, position=registry.Position(here.seq, here.commit_lsn, here.committed_at))
