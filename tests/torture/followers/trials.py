"""Three followers under random writers, DDL, deaths and crashes: `python -m tests.torture.followers --minutes 20`."""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psycopg

from pipeline.config import settings
from pipeline.config.settings import Config
from pipeline.errors import PipelineError
from pipeline.followers import registry
from pipeline.followers.operating import adding, resync, status
from pipeline.followers.registry import FollowerOptions
from pipeline.followers.running import applier_process
from pipeline.postgres import connections, session_settings
from pipeline.process.child import ChildProcess, program
from tests.fixtures.changing_rows import AT_FOLLOWER, AT_SOURCE
from tests.fixtures.postgres import Cluster, temporary_server, unique
from tests.fixtures.server import Serving, serving
from tests.fixtures.waiting import eventually
from tests.torture.followers.watcher import Watcher, differences
from tests.torture.followers.writer import Model, Writer
from tests.torture.outcome import Outcome

ROUND_SECONDS = 40.0
END_SECONDS = 180.0
"""How long followers have to be equal after the last fault: what stopped them is tried again after half a minute."""
FROM_THE_LOG, COPIED, RESTARTED = "from-the-log", "copied", "restarted"
"""The three: one from seq 0, one copied in the middle, one whose server is restarted."""
_CUT = """
    select pg_terminate_backend(pid) from pg_stat_activity
    where application_name like 'pipeline applier%' or application_name like 'pipeline follower%'
"""


class Place:
    """The servers of rounds: source and pipeline database on one, followers on two others."""

    def __init__(self, ours: Cluster, theirs: Cluster, restarted: Cluster) -> None:
        self.ours, self.theirs, self.restarted = ours, theirs, restarted


class Round:
    """One seed, with its own databases."""

    def __init__(self, place: Place, seed: int, folder: Path, stack: ExitStack) -> None:
        self.outcome = Outcome(seed)
        self._place, self._stack, self._random = place, stack, random.Random(seed)
        source = stack.enter_context(place.ours.database("source"))
        log = stack.enter_context(place.ours.database("events", place.ours.template))
        self._dsns = {
            name: stack.enter_context(cluster.database("follower"))
            for name, cluster in ((FROM_THE_LOG, place.theirs), (COPIED, place.theirs), (RESTARTED, place.restarted))
        }
        with psycopg.connect(source, autocommit=True) as connection:
            for statement in AT_SOURCE:
                connection.execute(statement.encode())
        with psycopg.connect(self._dsns[FROM_THE_LOG], autocommit=True) as connection:
            for statement in AT_FOLLOWER:
                connection.execute(statement.encode())
        slot = unique("slot")
        self._config: Config = settings.load(source_dsn=source, database_dsn=log, slot=slot)
        self._start: Callable[..., Serving] = stack.enter_context(serving(folder, source, log, slot))
        self._server = self._start(snapshot="never")
        self._model = Model()
        self._lock = threading.Lock()

    def play(self, seconds: float) -> Outcome:
        """Run all of it at once for this long; then every follower becomes equal to the source."""
        with ExitStack() as watchers:
            seen = dict[str, Watcher]()
            with Writer(self._config.source, self.outcome.seed, self._model) as writer:
                eventually(lambda: self._model.newest >= 0)
                for name, copy in ((FROM_THE_LOG, "log"), (RESTARTED, "source")):
                    self._add(name, copy)
                    seen[name] = watchers.enter_context(self._watcher(name))
                began = time.monotonic()
                self._disturb(writer, began + seconds / 3, [FROM_THE_LOG, RESTARTED])
                self._add(COPIED, "source")
                seen[COPIED] = watchers.enter_context(self._watcher(COPIED))
                self._disturb(writer, began + seconds, list(self._dsns))
            self.outcome.counts.update(writer.counts)
            if not self.outcome.wrong:
                self._finish()
        for watcher in seen.values():
            self.outcome.counts.update(watcher.seen)
        return self.outcome

    def _wrong(self, what: str) -> None:
        with self._lock:
            self.outcome.wrong.append(what)

    def _watcher(self, name: str) -> Watcher:
        return Watcher(name, self._dsns[name], self._config.database, self._model, self._wrong)

    def _add(self, name: str, copy: str) -> None:
        def add() -> None:
            with self._sessions() as (source, log):
                options = FollowerOptions(copy="log" if copy == "log" else "source")
                adding.add(self._config, source, log, name, self._dsns[name], options)

        eventually(add, 60, (PipelineError, psycopg.Error))

    @contextmanager
    def _sessions(self) -> Iterator[tuple[connections.Connection, connections.Connection]]:
        with (
            connections.connect(self._config.source, "source", settings=session_settings.SERVER) as source,
            connections.connect(self._config.database, "pipeline database") as log,
        ):
            yield source, log

    def _disturb(self, writer: Writer, until: float, names: list[str]) -> None:
        """One thing after the other, until then; what cannot be done just now is left out."""
        while time.monotonic() < until and not self.outcome.wrong:
            time.sleep(self._random.uniform(0.3, 2.0))
            if writer.error is not None:
                raise writer.error
            act = self._random.choice(self._acts(writer))
            with suppress(PipelineError, psycopg.Error, ProcessLookupError):
                act(self._random.choice(names))
                self.outcome.counts[act.__name__.strip("_")] += 1

    def _acts(self, writer: Writer) -> list[Callable[[str], None]]:
        def alter(_: str) -> None:
            writer.alter()

        often = [alter, alter, alter, self._kill_applier, self._kill_applier, self._freeze, self._zombie, self._resync]
        rare = [
            self._cut_there,
            self._cut_log,
            self._crash_follower,
            self._crash_source,
            self._pause,
            self._kill_server,
        ]
        return [*often, *rare]

    def _applier(self, name: str) -> int:
        return self._server.children().get(f"follower {name}", 0)

    def _kill_applier(self, name: str) -> None:
        if pid := self._applier(name):
            os.kill(pid, signal.SIGKILL)

    def _freeze(self, name: str) -> None:
        if pid := self._applier(name):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(self._random.uniform(0.1, 3.0))
            os.kill(pid, signal.SIGCONT)

    def _zombie(self, name: str) -> None:
        """A second applier of the same follower, which freezes in the middle of what it does and wakes again."""
        with self._sessions() as (_, log):
            [follower] = registry.find(log, name)
        given = json.dumps({"id": follower.id, "name": name, "settings": self._config.to_json()})
        zombie = ChildProcess("zombie", program(applier_process.COMMAND), given)
        zombie.start()
        try:
            time.sleep(self._random.uniform(0.5, 2.0))
            for number in (signal.SIGSTOP, signal.SIGCONT):
                assert zombie.process is not None
                zombie.process.send_signal(number)
                time.sleep(self._random.uniform(0.2, 1.0))
        finally:
            zombie.kill(10)
            zombie.forget()

    def _resync(self, name: str) -> None:
        table = self._random.choice(["public.pairs", "public.wide", "public.bare", "public.lines", "public.*"])
        with self._sessions() as (_, log):
            resync.resync(log, name, [table])

    def _cut_there(self, name: str) -> None:
        with psycopg.connect(self._dsns[name], autocommit=True) as there:
            there.execute(_CUT)

    def _cut_log(self, _: str) -> None:
        with psycopg.connect(self._config.database, autocommit=True) as log:
            log.execute(_CUT)

    def _pause(self, name: str) -> None:
        with self._sessions() as (_, log):
            status.pause(log, name)
            time.sleep(self._random.uniform(0.5, 2.0))
            status.resume(log, name)

    def _crash_follower(self, _: str) -> None:
        self._crash(self._place.restarted)

    def _crash_source(self, _: str) -> None:
        self._crash(self._place.ours)

    def _crash(self, cluster: Cluster) -> None:
        assert cluster.server is not None
        cluster.server.stop("immediate")
        time.sleep(self._random.uniform(0.0, 1.0))
        cluster.server.start()

    def _kill_server(self, _: str) -> None:
        self._server.kill()
        self._server = self._start(snapshot="never")

    def _finish(self) -> None:
        self._resume_all()
        wanted = self._model.after(self._model.newest, 1)

        def are_equal() -> None:
            for name, dsn in self._dsns.items():
                with psycopg.connect(dsn) as there:
                    assert not (found := differences(there, wanted)), f"{name}: {'; '.join(found)}"

        try:
            eventually(are_equal, END_SECONDS, (AssertionError, psycopg.Error))
        except AssertionError as error:
            with self._sessions() as (_, log):
                states = [(each.name, each.state, each.reason) for each in status.list_followers(log)]
            self._wrong(f"{error}; {states}")

    def _resume_all(self) -> None:
        with self._sessions() as (_, log):
            for each in status.list_followers(log):
                if each.state == "paused":
                    status.resume(log, each.name)


@contextmanager
def stage(major: int, theirs: int) -> Iterator[Place]:
    """Servers for rounds: ours, and those of followers."""
    with temporary_server(major) as ours, temporary_server(theirs) as one, temporary_server(theirs) as other:
        yield Place(ours, one, other)


def play(place: Place, seed: int, seconds: float) -> Outcome:
    """One round."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        return Round(place, seed, Path(folder), stack).play(seconds)


def main() -> int:
    """Rounds for some minutes, until something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pg", type=int, default=18, help="major version of source and pipeline database")
    parser.add_argument("--followers-pg", type=int, default=18, help="major version of the followers")
    given = parser.parse_args()
    seed, counts = given.seed, Counter[str]()
    with stage(given.pg, given.followers_pg) as place:
        until = time.monotonic() + 60 * given.minutes
        while time.monotonic() < until:
            outcome = play(place, seed, ROUND_SECONDS)
            print(outcome, flush=True)
            counts += outcome.counts
            if outcome.wrong:
                return 1
            seed += 1
    print(json.dumps(counts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
