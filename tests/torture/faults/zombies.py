"""Holders that are stopped or cut off and come back: each has been replaced by then, and may write nothing."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import psycopg

from tests.fixtures.processes import alive
from tests.fixtures.waiting import eventually
from tests.torture.faults.servers import FIND_WITHIN, Servers
from tests.torture.rig import Scene

T = TypeVar("T")
Hit = Callable[[], None]

UNREAD_SECONDS = 0.3
"""How long the stream to a zombie goes on: what it will want to write when it wakes."""
ZOMBIE_SECONDS = 1.0
"""How long a zombie is left alone with what it still wants to write."""
STREAM = re.compile(r"pipeline [0-9a-f]{8}-")
"""How the name of the connection that streams begins; it goes on as the source's id does."""


class Zombies:
    """Each method is a fault; it calls `hit` when that has happened, and returns when it is over."""

    def __init__(self, scene: Scene, servers: Servers) -> None:
        self._scene = scene
        self._servers = servers

    def zombie(self, role: str, hit: Hit) -> None:
        """A role and its supervisor stop, their locks go, another server goes on; then both wake up."""
        with self._servers.replacing:
            pid = self._servers.find(role)
            old = self._servers.current
            if not pid or not send(signal.SIGSTOP, old.process.pid, pid):
                return
            hit()
            try:
                time.sleep(UNREAD_SECONDS)
                self._evict(role)
                self._servers.current = self._servers.start()
                self._servers.taken_over(role)
            finally:
                send(signal.SIGCONT, pid, old.process.pid)
            time.sleep(ZOMBIE_SECONDS)
            old.close()
            self._scene.rig.source.proxy.thaw()

    def stranded_worker(self, hit: Hit) -> None:
        """A worker's network goes away, another takes over; just then what the first was staging gets through."""
        log = self._scene.rig.log.proxy
        with self._servers.replacing:
            if not self._servers.find("replication"):
                return
            old = self._servers.current
            if not send(signal.SIGSTOP, old.process.pid):
                return
            try:
                # The role's session too, or it would hear that it has lost it; and nothing is moved on meanwhile.
                for name in ("staging", "replication", "shuffle"):
                    log.strand(f"pipeline {name}")
                hit()
                time.sleep(UNREAD_SECONDS)
                before = surely(self._generation)
                self._evict("replication")
                self._servers.current = self._servers.start()
                self._claimed_after(before)
                log.thaw("pipeline staging")  # only the fence is in its way
                time.sleep(ZOMBIE_SECONDS)
            finally:
                old.close()
                self._scene.rig.source.proxy.thaw()
                log.thaw()

    def _claimed_after(self, generation: int) -> None:
        def check() -> None:
            self._servers.tend()
            assert surely(self._generation) > generation, f"no worker has taken over from generation {generation}"

        self._servers.go_on(check)

    def _generation(self) -> int:
        """Of the worker that may stage."""
        with self._scene.log() as log:
            query = "select coalesce(max(generation), 0) from pipeline.replication_progress where worker = 0"
            row = log.execute(query).fetchone()
        return int(row[0]) if row else 0

    def _evict(self, role: str) -> None:
        """End the sessions by which a server that cannot help it holds the lead, a role and the slot."""
        rig = self._scene.rig
        # The worker hears nothing of the walsender's end, as behind a dead network.
        rig.source.proxy.strand(stream := stream_name(self._scene))
        surely(lambda: rig.source.terminate(stream))
        surely(lambda: [rig.log.terminate(name) for name in ("pipeline serve", f"pipeline {role}")])

    def stopped_server(self, hit: Hit) -> None:
        """All of a server stops; a standby goes on; then it wakes up."""
        with self._servers.replacing:
            if not self._servers.find("replication"):  # who found a database away as it came up is started again
                return
            old = self._servers.current
            standby = self._servers.start()
            with suppress(AssertionError):  # one that does not come up meanwhile is started again
                eventually(lambda: "standing by" in standby.log(), FIND_WITHIN)
            self._scene.freeze_server(old)
            self._servers.current = standby
            hit()
            try:
                self._servers.taken_over("replication", "shuffle")
            finally:
                self._scene.thaw_server(old)
            time.sleep(ZOMBIE_SECONDS)
            old.close()

    def stopped_roles(self, hit: Hit) -> None:
        """Worker and shuffler stop; their supervisor has to see it."""
        with self._servers.replacing:
            pids = {role: self._servers.find(role) for role in ("replication", "shuffle")}
            if not all(pids.values()) or not send(signal.SIGSTOP, *pids.values()):
                return
            hit()
            try:
                self._servers.go_on(lambda: not any(alive(pid) for pid in pids.values()))
                self._servers.taken_over(*pids)
            finally:
                send(signal.SIGCONT, *pids.values())


def stream_name(scene: Scene) -> str:
    """Of the connection that streams; an unused name if there is none."""
    names = [name for name in scene.rig.source.proxy.names() if STREAM.match(name)]
    return names[0] if names else "no-process"


def surely(act: Callable[[], T]) -> T:
    """Do it, also when the database is away for a moment."""
    return eventually(lambda: [act()], 4 * FIND_WITHIN, (psycopg.OperationalError,))[0]


def send(number: int, *pids: int) -> bool:
    """Whether all were there."""
    there = True
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            there = False
    return there
