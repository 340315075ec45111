"""Records consumers under random writers, clients and crashes: `python -m tests.torture.consumers --minutes 10`."""

from __future__ import annotations

import argparse
import logging
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, LiteralString

import psycopg

from pipeline.errors import DatabaseUnavailableError
from pipeline.postgres import connections, role_locks
from tests.fixtures.postgres import Cluster, temporary_server
from tests.fixtures.shuffling import move_until, shuffler
from tests.fixtures.staged import Staged, Table
from tests.fixtures.waiting import eventually
from tests.torture.consumers.clients import Client, Journal, drain, kill
from tests.torture.consumers.model import Event, Truth, Wish, violations
from tests.torture.consumers.mutations import MUTATIONS, mutated
from tests.torture.consumers.writer import Writer
from tests.torture.outcome import Outcome

TABLES = (Table("t"), Table("pair", ("a", "b")), Table("keyless", ()))
KEYS = {**{table.name: table.key for table in TABLES}, "note": ()}
KEYLESS = frozenset(name for name, key in KEYS.items() if not key)
WISHES = (
    Wish("plain"),
    Wish("limited", frozenset({"t"}), max_unacknowledged=5),
    Wish("grouped", frozenset({"t", "pair"}), group_by="g", max_unacknowledged=8),
    Wish("dying", frozenset({"t", "keyless"}), max_deliveries=3),
    Wish("every", collapse=False),
    Wish("every-grouped", frozenset({"t", "pair"}), group_by="g", max_unacknowledged=8, collapse=False),
    Wish("every-dying", frozenset({"t", "keyless"}), max_deliveries=3, collapse=False),
)
CLIENTS = 3
"""Receivers of each consumer."""
ROUND_SECONDS = 6.0
DRAIN_SECONDS = 60.0
EVENTS = """
    select seq, source_table_name, record_pk, action, record, changes from public.sequin_events
    where seq > %s order by seq
"""
LEFT = """
    select r.record_pk, r.seq, r.queued_seq, r.action, r.state, r.visible_at, r.group_id, r.deliveries
    from public.consumer_records r join pipeline.consumers c on c.id = r.consumer_id where c.name = %s
"""
DEFERRED = "select consumer_id, record_pk, seq, queued_seq, action from pipeline.consumer_touches"


class Shuffling(threading.Thread):
    """The shuffler, created again whenever its session is lost."""

    def __init__(self, staged: Staged, stopped: threading.Event) -> None:
        super().__init__()
        self.error: BaseException | None = None
        self.pid = 0
        self._staged = staged
        self._stopped = stopped

    def run(self) -> None:
        while not self._stopped.is_set():
            try:
                with connections.connect(self._staged.dsn, "pipeline database") as connection:
                    eventually(lambda: role_locks.try_acquire(connection, "shuffle"))
                    self.pid = connection.info.backend_pid
                    move_until(self._stopped, shuffler(connection, self._staged.source))
            except (psycopg.OperationalError, DatabaseUnavailableError):
                self._stopped.wait(0.05)  # killed
            except BaseException as error:
                self.error = error
                return


class Round:
    """One seed on a running server."""

    def __init__(self, cluster: Cluster, staged: Staged, seed: int) -> None:
        self._cluster = cluster
        self._staged = staged
        self._random = random.Random(seed)
        self.outcome = Outcome(seed)
        self._stopped, self._stopped_shuffling = threading.Event(), threading.Event()
        self._journals = {wish.name: Journal(wish, KEYLESS) for wish in WISHES}
        self._writing = threading.Lock()
        self._writer = Writer(staged, self._random.getrandbits(32), self._stopped, self._writing)
        self._shuffling = Shuffling(staged, self._stopped_shuffling)
        self._clients: list[Client] = []

    def play(self, seconds: float) -> Outcome:
        """Run all of it at once for this long; then everything is acknowledged and compared with the log."""
        self._staged.reset()
        late = self._random.choice(WISHES)
        for wish in WISHES:
            if wish is not late:
                self._begin(wish, "now")
        self._shuffling.start()
        self._writer.start()
        try:
            self._disturb(seconds, lambda: self._begin(late, "0"))
        finally:
            self._stopped.set()
            self._writer.join()
            for client in self._clients:
                client.join()
        self._finish()
        return self.outcome

    def _begin(self, wish: Wish, start: str) -> None:
        with psycopg.connect(self._staged.dsn, autocommit=True) as connection:
            connection.execute(
                "select pipeline.create_consumer(%s, tables => %s, start => %s, group_by => %s, max_deliveries => %s,"
                " max_unacknowledged => %s, collapse => %s)",
                [
                    wish.name,
                    [f"public.{table}" for table in wish.tables],
                    start,
                    [wish.group_by] if wish.group_by else None,
                    wish.max_deliveries,
                    wish.max_unacknowledged,
                    wish.collapse,
                ],
            )
        clients = [
            Client(self._staged.dsn, self._journals[wish.name], self._random.getrandbits(32), self._stopped)
            for _ in range(CLIENTS)
        ]
        for client in clients:
            client.start()
        self._clients += clients

    def _disturb(self, seconds: float, begin_late: Callable[[], None]) -> None:
        end, late_at = time.monotonic() + seconds, time.monotonic() + seconds / 3
        crash_at = time.monotonic() + self._random.uniform(0.3, 0.9) * seconds
        begun = False
        while time.monotonic() < end:
            self._stopped.wait(self._random.uniform(0.02, 0.2))
            if not begun and time.monotonic() > late_at:
                begin_late()
                begun = True
            if time.monotonic() > crash_at:
                self._crash()
                crash_at = end
            self._kill_someone()
            self._pause_or_resume()
        if not begun:
            begin_late()
        self._all("select pipeline.resume_consumer(name) from pipeline.consumers")

    def _kill_someone(self) -> None:
        chance = self._random.random()
        with psycopg.connect(self._staged.dsn, autocommit=True) as connection:
            if chance < 0.15:
                self.outcome.counts["killed shufflers"] += 1
                connection.execute("select pg_terminate_backend(%s)", [self._shuffling.pid])
            elif chance < 0.5:
                self.outcome.counts["killed clients"] += 1
                kill(connection, self._random.choice(self._clients))

    def _pause_or_resume(self) -> None:
        """Half of the consumers are paused for a while, now and then."""
        if self._random.random() < 0.15:
            self.outcome.counts["pauses"] += 1
            self._all("select pipeline.pause_consumer(name) from pipeline.consumers where id % 2 = 0")
        elif self._random.random() < 0.5:
            self._all("select pipeline.resume_consumer(name) from pipeline.consumers where state = 'paused'")

    def _all(self, call: LiteralString) -> None:
        with psycopg.connect(self._staged.dsn, autocommit=True) as connection:
            connection.execute(call)

    def _crash(self) -> None:
        """The pipeline database stops at once and recovers. The writer waits: what it wrote is known."""
        assert self._cluster.server is not None
        with self._writing:
            self.outcome.counts["crashes"] += 1
            self._cluster.server.stop("immediate")
            self._cluster.server.start()
            self._staged.reconnect()

    def _finish(self) -> None:
        counts = self.outcome.counts
        for error in (self._writer.error, self._shuffling.error, *(client.error for client in self._clients)):
            if error is not None:
                raise error
        head = "select coalesce(max(commit_lsn), 0) from public.sequin_events"
        folded = (
            "select min(p.folded_seq) >= max(s.last_seq) from pipeline.consumer_progress p, pipeline.shuffle_progress s"
        )
        eventually(lambda: self._one(head) == self._staged.lsn and self._one(folded), timeout=DRAIN_SECONDS)
        for name, journal in self._journals.items():
            given = len(journal.deliveries)
            deadline = time.monotonic() + (5.0 if self.outcome.wrong else DRAIN_SECONDS)
            drain(self._staged.dsn, journal, partial(self._has_left, name), deadline)
            if left := self._left(name):
                self.outcome.wrong.append(f"{name}: {len(left)} items are never handed out: {left[:3]}")
            counts["deliveries"] += given
            counts["acknowledged"] += sum(one.acked is True for one in journal.deliveries)
        self._stopped_shuffling.set()
        self._shuffling.join()
        if self._shuffling.error is not None:
            raise self._shuffling.error
        self._compare()

    def _compare(self) -> None:
        with psycopg.connect(self._staged.dsn) as connection:
            truth = Truth(KEYS).read(Event(*row) for row in connection.execute(EVENTS, [0]))
        self.outcome.counts["events"] = sum(len(changes) for changes in truth.items.values())
        for journal in self._journals.values():
            self.outcome.wrong += violations(truth, journal.wish, journal.deliveries)

    def _left(self, name: str) -> list[tuple[Any, ...]]:
        """Items of a consumer, and changes of anybody's that are deferred."""
        with psycopg.connect(self._staged.dsn) as connection:
            return connection.execute(LEFT, [name]).fetchall() + connection.execute(DEFERRED).fetchall()

    def _has_left(self, name: str) -> bool:
        return bool(self._left(name))

    def _one(self, query: str, *values: object) -> int:
        with psycopg.connect(self._staged.dsn) as connection:
            row = connection.execute(query, values).fetchone()
        assert row is not None
        return row[0] or 0


@contextmanager
def stage(major: int) -> Iterator[tuple[Cluster, Staged]]:
    """Its own server, which crashes, with a migrated database."""
    with temporary_server(major) as cluster:
        cluster.create("torture", cluster.template)
        dsn = cluster.dsn("torture")
        staged = Staged(dsn, TABLES)
        try:
            yield cluster, staged
        finally:
            with suppress(psycopg.Error):
                staged.close()


def main() -> int:
    """Exit status 1 when a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture.consumers", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--pg", type=int, default=18)
    parser.add_argument("--seed", type=int, help="of the first round")
    parser.add_argument("--mutation", choices=sorted(MUTATIONS), help="break a promise, to see that it is noticed")
    arguments = parser.parse_args()
    logging.getLogger("psycopg").setLevel(logging.ERROR)
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(10**6)
    began = time.monotonic()
    total: Counter[str] = Counter()
    with stage(arguments.pg) as (cluster, staged), mutated(staged.dsn, arguments.mutation):
        while time.monotonic() - began < arguments.minutes * 60:
            outcome = Round(cluster, staged, seed).play(ROUND_SECONDS)
            print(outcome, flush=True)
            if outcome.wrong:
                print(f"broken after {time.monotonic() - began:.0f} s")
                return 1
            total += outcome.counts
            total["rounds"] += 1
            seed += 1
    print(f"nothing broken: {dict(total)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
