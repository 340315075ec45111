"""What a directed fault point plays on: a scene with a running server, a script, a witness, and the comparison."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import groupby, zip_longest
from typing import Any, Literal

from tests.fixtures.processes import alive
from tests.fixtures.server import Serving
from tests.fixtures.test_decoding import Change
from tests.fixtures.waiting import eventually
from tests.torture.oracle.witness import Witness
from tests.torture.rig import Rig, Scene
from tests.torture.writers.script import Script, Transaction

MOST_DEATHS = 5
"""A role that dies this often is restarted too late for a trial: then a fresh server continues."""
ARRIVAL = 60.0
"""Seconds after a fault until the log must hold everything."""
Way = Literal["staged", "at_once", "adopt"]
"""`adopt`: whatever comes is a backlog, and a transaction of twenty rows becomes its own partition."""
SETTINGS: Mapping[Way, Mapping[str, str]] = {
    "staged": {"small_batches": "staged"},
    "at_once": {"small_batches": "at_once"},
    "adopt": {"small_batches": "staged", "adopt_threshold": "1", "catchup_interval": "0.05"},
}
_EVENTS = """
    select commit_lsn, source_table_schema || '.' || source_table_name, action, record_pk,
        coalesce((select json_object_agg(key, value) from jsonb_each_text(record)), '{}')
    from public.sequin_events where seq > %s order by seq"""


class Stage:
    """Played on by one point after the other, as long as none fails. `settled` is set while no statement runs."""

    def __init__(self, rig: Rig, way: Way = "staged") -> None:
        """`way`: of small batches into the log."""
        self.rig = rig
        self._settings: dict[str, Any] = dict(SETTINGS[way])
        self.scene: Scene = rig.scene()
        self.script = Script(self.scene.source_dsn)
        self.witness = Witness(self.scene.log_dsn)
        self.settled = threading.Event()
        self.deaths: Counter[str] = Counter()
        self._server: Serving | None = None
        self._compared = 0
        self._zombie: tuple[int, Serving]
        self._counted = 0
        self.before = 0
        """The witness's last seq before the fault was provoked."""

    @property
    def server(self) -> Serving:
        """The server that leads."""
        assert self._server is not None
        return self._server

    def ready(self) -> None:
        """A server runs and its roles are quick to come back."""
        if self.deaths and max(self.deaths.values()) >= MOST_DEATHS:
            self.server.close()
            self._server = None
        if self._server is None:
            self.start()
            self.server.wait_ready()

    def start(self) -> None:
        """A fresh server, which may not be ready yet."""
        self._server = self.scene.start_server(wait=False, **self._settings)
        self.deaths.clear()

    def kill(self, *roles: str) -> None:
        """SIGKILL, at once."""
        for role in roles:
            self.scene.kill(self.server, role)
        self.deaths.update(roles)

    def kill_server(self) -> None:
        """The supervisor alone, and another server instead."""
        self.scene.kill(self.server)
        self.start()

    def crash_log(self) -> None:
        """An immediate shutdown of the pipeline database; a reader looks before the product can."""
        self.settled.wait(10)
        self.rig.log.crash(self.witness.look)
        self.deaths.update(("replication", "shuffle"))

    def crash_source(self) -> None:
        """An immediate shutdown of the source."""
        self.settled.wait(10)
        self.rig.source.crash()
        self.deaths.update(("replication",))

    def crash_both(self) -> None:
        """One after the other, without the product between."""
        self.settled.wait(10)
        self.rig.source.proxy.freeze()
        self.rig.log.crash(self.crash_source)
        self.rig.source.proxy.cut()
        self.rig.source.proxy.thaw()

    def outlive(self, role: str) -> None:
        """Freeze the role's process, let another server's take over and do more, and wake the first one up again.

        That one has heard of nothing meanwhile: of a worker's connections, only what it stages on still leads anywhere.
        """
        self.settled.wait(10)
        zombie = self.server.child_pid(role)
        os.kill(zombie, signal.SIGSTOP)
        if role == "replication":
            self.rig.source.proxy.strand()
            self.rig.log.proxy.strand("pipeline replication")
            self.rig.log.proxy.freeze("pipeline shuffle")  # or the watermark would hide what a zombie stages too
        self.rig.log.terminate(f"pipeline {role}")
        replacement = self.scene.start_server(wait=False, arguments=("serve", "--only", role), **self._settings)
        self._zombie = zombie, replacement
        before = self.witness.last, self.script.flushed()
        self.script.small()
        eventually(self._alive(lambda: self._has_done(role, *before)), ARRIVAL)
        with suppress(ProcessLookupError):  # on a slow machine its supervisor may have ended the frozen process
            os.kill(zombie, signal.SIGCONT)

    def bury(self, role: str) -> None:
        """The one that woke up ends, and has written nothing."""
        zombie, replacement = self._zombie
        if role == "replication":
            with suppress(AssertionError):  # one that goes on is seen in the log
                eventually(lambda: len(self.rig.log.sessions("pipeline staging")) == 1, timeout=5)
        self.rig.log.proxy.thaw()
        self.rig.source.proxy.thaw()
        self.finish()
        eventually(lambda: not alive(zombie))
        self.scene.kill(replacement)
        self.deaths.update((role,))

    def see_more(self) -> None:
        """A reader has got what has just been committed to the log, beyond `before`."""

        def seen() -> bool:
            self.witness.look()
            return self.witness.last > self.before

        eventually(seen)

    def see_all(self) -> None:
        """The witness has been given everything that was committed at the source."""
        wanted = self._counted + sum(map(len, self.script.transactions))
        eventually(self._alive(lambda: len(self.witness.seen) >= wanted), ARRIVAL)

    def finish(self) -> None:
        """The script's end arrives, and the log holds what was committed: every transaction whole, once, in order."""
        self.script.mark()
        (end,) = self.script.transactions[-1]
        with self.scene.log() as log:
            query = (
                "select from public.sequin_events where seq > %s and action = 'message' and record ->> 'content' = %s"
            )
            content = end.values["content"]
            eventually(self._alive(lambda: log.execute(query, [self._compared, content]).rowcount == 1), ARRIVAL)
            found = [(lsn, Change(*rest)) for lsn, *rest in log.execute(_EVENTS, [self._compared])]
        transactions = [[change for _, change in rows] for _, rows in groupby(found, key=lambda row: row[0])]
        assert_equal(transactions, self.script.transactions)
        self.witness.verify()
        self.script.transactions.clear()
        self._compared, self._counted = self.witness.last, len(self.witness.seen)

    def _has_done(self, role: str, seq: int, flushed: int) -> bool:
        """Whether the role has moved or staged what came after this."""
        if role != "replication":
            return self.witness.last > seq
        with self.scene.log() as log:
            row = log.execute("select max(position) from pipeline.replication_progress").fetchone()
        return bool(row and row[0] > flushed)

    def _alive(self, check: Callable[[], bool]) -> Callable[[], bool]:
        """The check, but a server that gave up is the end of it."""

        def checked() -> bool:
            if self.server.process.poll() is not None:
                raise RuntimeError(f"serve ended with {self.server.process.returncode}: {self.server.log()[-600:]}")
            return check()

        return checked

    def close(self) -> None:
        """End everything."""
        self.witness.close()
        self.scene.close()


def assert_equal(found: list[Transaction], expected: list[Transaction]) -> None:
    """Fails at the first transaction that differs, and says how, in a few lines."""
    pairs: Iterable[tuple[Transaction, Transaction]] = zip_longest(found, expected, fillvalue=[])
    for number, (event, change) in enumerate(pairs, 1):
        if event == change:
            continue
        same = next((n for n, pair in enumerate(zip(event, change, strict=False)) if pair[0] != pair[1]), None)
        at = min(len(event), len(change)) if same is None else same
        raise AssertionError(
            f"transaction {number} of {len(expected)} has {len(event)} changes in the log and {len(change)} at the "
            f"source; from change {at} on, the log has {_short(event[at:])} and the source {_short(change[at:])}"
        )


def _short(changes: Transaction) -> str:
    return str([(change.action, change.key) for change in changes[:2]]) if changes else "nothing"
