"""The servers of a seed: one that is to run whatever happens, and how another takes its place."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import cycle, islice
from typing import Any

import psutil
import psycopg

from tests.fixtures.processes import group_of, title
from tests.fixtures.server import Serving
from tests.fixtures.waiting import eventually
from tests.torture.plan.plan import Ways
from tests.torture.rig import Scene

CATCHUP: dict[str, Any] = {"catchup_threshold": "16kB", "catchup_interval": 0.05, "catchup_max_slots": 4}
NO_CATCHUP: dict[str, Any] = {"catchup_threshold": "off"}
_AT_ONCE, _STAGED = ({"small_batches": way, "adopt_threshold": "off"} for way in ("at_once", "staged"))
_ADOPT, _ADOPT_BACKLOGS = ({"adopt_threshold": size, "catchup_interval": "0.05"} for size in ("1", "32kB"))
WAYS: Mapping[Ways, Sequence[Mapping[str, Any]]] = {
    "default": ({},),
    "at_once": (_AT_ONCE,),
    "staged": (_STAGED,),
    "mixed": (_AT_ONCE, _STAGED),
    "adopt": (_STAGED | _ADOPT, _STAGED | _ADOPT_BACKLOGS),
    "all": (_AT_ONCE | _ADOPT, _STAGED, _STAGED | _ADOPT_BACKLOGS, _AT_ONCE | _ADOPT_BACKLOGS),
}
"""By turns. Whatever comes is adopted, in segments of some rows; or a backlog of 32 kB is, in those of a hundred."""
FIND_WITHIN = 15.0
"""Seconds a fault waits for something to hit; after that it has not happened."""
TAKEN_OVER_WITHIN = 120.0
"""Seconds from a server's or role's freeze until another must have gone on. Whether 15 do, test_frozen.py says: here
other faults hit meanwhile, and on a machine that is busy a role alone takes 17 to start."""
DRAINED_WITHIN = 30.0
HELPER = "pipeline: catch-up"
SNAPSHOT, SNAPSHOT_WORKER = "pipeline: snapshot", "pipeline: snapshot worker"


class ServerEnded(Exception):
    """A server is to go on whatever happens to it, and to its databases."""


class Servers:
    """`current` is the server that should run. The thread that replaces it holds `replacing`."""

    def __init__(
        self, scene: Scene, tables: str, *, catchup: bool = False, read: str = "", ways: Ways = "default", turn: int = 0
    ) -> None:
        """`tables`: PIPELINE_TABLES of each; `catchup`: forced; `read`: PIPELINE_SNAPSHOT_TABLES, or nothing is read.

        `ways`: PIPELINE_SMALL_BATCHES, and whether a backlog is adopted, `turn`: with which of them the first begins.
        Returns when the slot keeps what comes.
        """
        self._ways = islice(cycle(WAYS[ways]), turn % len(WAYS[ways]), None)
        self._scene = scene
        self._settings = {"tables": tables, **(CATCHUP if catchup else NO_CATCHUP)}
        self._settings |= {"snapshot_tables": read} if read else {"snapshot": "never"}
        self._tending = threading.Lock()
        self.replacing = threading.Lock()
        self.current = self.start()
        eventually(self._streams, TAKEN_OVER_WITHIN, (AssertionError, psycopg.OperationalError))

    @property
    def settings(self) -> dict[str, Any]:
        """Those of each server, for another command."""
        return self._scene.given | self._settings

    def start(self) -> Serving:
        """One more."""
        return self._scene.start_server(wait=False, **(self._settings | dict(next(self._ways))))

    def kill(self) -> None:
        """SIGKILL to the current one's supervisor, and another is started at once."""
        with self._tending:
            self.current.process.kill()
            self.current.process.wait()
            self.current = self.start()

    def hand_over(self) -> None:
        """Another is started beside the current one, which then drains and ends."""
        with self._tending:
            old, self.current = self.current, self.start()
        old.process.terminate()
        with suppress(subprocess.TimeoutExpired):  # a database may be away: then as others that are replaced
            old.process.wait(DRAINED_WITHIN)
        old.close()

    def tend(self) -> None:
        """Start a server again that found a database away when it came up. Raises ServerEnded when one just ended."""
        with self._tending:
            if (code := self.current.process.poll()) is None:
                return
            if '"serve.serving"' in self.current.log():
                raise ServerEnded(f"serve ended by itself with exit status {code}")
            self.current = self.start()

    def find(self, role: str) -> int:
        """The pid of a role's process, once there is one; 0 when there is none for long."""

        def find() -> int:
            self.tend()
            return self.current.children().get(role, 0)

        with suppress(AssertionError):
            return eventually(find, FIND_WITHIN)
        return 0

    def helpers(self) -> list[int]:
        """pids of those that stage parts of a backlog: children of a server's worker, current or zombie."""
        return [pid for pid in psutil.pids() if title(pid).startswith(HELPER) and group_of(pid) in self._groups()]

    def named(self, name: str) -> list[int]:
        """pids of processes with just this title, of the current server or of a zombie."""
        return [pid for pid in psutil.pids() if title(pid) == name and group_of(pid) in self._groups()]

    def _groups(self) -> set[int]:
        return {server.process.pid for server in self._scene.servers}

    def taken_over(self, *roles: str) -> None:
        """Until the present server's processes run these roles. Other faults may hit meanwhile: not by the second."""

        def check() -> None:
            self.tend()
            with psycopg.connect(self._scene.log_dsn, autocommit=True, connect_timeout=5) as log:
                rows = log.execute("select role, pid from pipeline.roles where state = 'running'").fetchall()
            running: dict[str, int] = dict(rows)
            children = self.current.children()
            for role in roles:
                assert running.get(role) == children.get(role, 0), f"{role}: {running} run, not {children}"

        self.go_on(check)

    def go_on(self, check: Callable[[], object]) -> None:
        """Until a check of somebody's taking over holds; says how everything is when it does not."""
        try:
            eventually(check, TAKEN_OVER_WITHIN, (AssertionError, psycopg.OperationalError))
        except (AssertionError, psycopg.OperationalError) as error:
            raise AssertionError(f"{error}\n{self._scene.newest_lines()}") from error

    def _streams(self) -> bool:
        """From here on the slot keeps what is written."""
        self.tend()
        query = "select from pg_replication_slots where slot_name = %s and active"
        with self._scene.source() as source:
            return source.execute(query, [self._scene.slot]).fetchone() is not None
