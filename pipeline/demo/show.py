"""The demo from curtain to curtain: Postgres, the shop, the server, the writers, the check, the queries to try."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import signal
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from rich.console import Console

from pipeline import config as settings
from pipeline import databases, db
from pipeline.config import Config
from pipeline.demo import reader, screen, shop
from pipeline.demo.reader import Follower
from pipeline.demo.recording import RecordingSession
from pipeline.demo.screen import Snapshot
from pipeline.demo.server import ServerProcess
from pipeline.demo.shop import Clerk
from pipeline.demo.verdict import Record, verdict
from pipeline.embedded import Server
from pipeline.errors import ConfigError, PipelineError
from pipeline.operations import status

ARRIVAL_TIMEOUT = 30.0
"""Seconds that the last commit may take to arrive."""
LEFTOVER_TIMEOUT = 15.0
"""Seconds that the server of a demo that was killed gets to end."""
_FRAME = 0.25
_SHOWN_DIFFERENCES = 5


def run(seconds: float, data_dir: Path) -> int:
    """Show it; 0 when every change arrived once and in order, 1 with the difference, 130 after Ctrl-C.

    Settings of the environment and of pipeline.toml play no part. What the writers did is kept in memory, about 1 kB
    a change. Raises PipelineError, in plain words, when something the show needs fails.
    """
    _forget_settings()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console(highlight=False, soft_wrap=True)
    folder = data_dir.absolute()
    config = settings.from_json(json.dumps({"data_dir": str(folder)}))
    try:
        console.print(f"starting a Postgres and the server in {_short(folder)}")
        with _alone(folder), _postgres(config) as (server, resolved):
            shop.create(resolved.source)
            outcome = _Show(console, resolved).run(seconds)
            return _report(console, outcome, server, folder)
    except psycopg.Error as error:
        raise PipelineError(f"a database of the demo failed: {db.one_line(error)}; see {folder}") from error
    except KeyboardInterrupt:
        console.print("\ninterrupted; the writers, the server and Postgres are stopped")
        return 130


def _forget_settings() -> None:
    """Neither our settings nor libpq's may lead to another database. For this process and its children."""
    for name in [name for name in os.environ if name.startswith(("PIPELINE_", "PG"))]:
        del os.environ[name]


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One demo at a time in a data directory."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / "demo.lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise ConfigError(f"cannot use {folder}: {error.strerror}; choose another --data-dir") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise ConfigError(f"another demo runs in {folder}; wait for its end, or choose another --data-dir") from error
    finally:
        os.close(descriptor)


@contextmanager
def _postgres(config: Config) -> Iterator[tuple[Server, Config]]:
    """The embedded Postgres of the demo, stopped at the end also when a killed demo had left it running."""
    server = databases.embedded_server(config)
    found = not server.start()
    resolved = config.with_databases(server.dsn(databases.SOURCE), server.dsn(databases.PIPELINE))
    with ExitStack() as stack:
        stack.callback(server.stop)
        server.create_databases(databases.SOURCE, databases.PIPELINE)
        if found and (holder := _holder(resolved, LEFTOVER_TIMEOUT)):
            stack.pop_all()  # somebody works with it
            raise ConfigError(f"the server {holder} runs on {config.data_dir}; stop it, or choose another --data-dir")
        yield server, resolved


def _holder(config: Config, seconds: float) -> str | None:
    """Which server still works on the pipeline database after so long."""
    deadline = time.monotonic() + seconds
    while held := [role for role in status.collect(config).roles if role.held]:
        if time.monotonic() > deadline:
            return held[0].server
        time.sleep(0.2)
    return None


@dataclass(frozen=True)
class _Outcome:
    """How it went. `differences`: empty when all is well. `delays`: seconds from commit to this program's reader."""

    differences: list[str]
    commits: int
    changes: int
    rollbacks: int
    savepoints: int
    seconds: float
    delays: list[float]
    counts: dict[tuple[str, str], int]


class _Show:
    """The part in which everything runs."""

    def __init__(self, console: Console, config: Config) -> None:
        self._console = console
        self._config = config
        self._began = f"{time.time_ns()} begin"
        self._ended = f"{time.time_ns()} end"
        self._status = status.Status()
        self._asked = 0.0

    def run(self, seconds: float) -> _Outcome:
        """Serve, write for so long, wait for the last commit, check."""
        with ExitStack() as stack:
            self._server = ServerProcess(self._config.data_dir)
            stack.callback(self._server.stop)
            self._server.wait_until_ready()
            self._console.print(f"the server is ready; its log is {_short(self._server.log)}")
            self._source = stack.enter_context(db.connect(self._config.source, "source", name="demo"))
            self._pipeline = stack.enter_context(db.connect(self._config.database, "pipeline database", name="demo"))
            self._follower = Follower(self._config.database, self._began)
            stack.callback(self._follower.stop)
            self._begin()
            sessions = self._write(stack, seconds)
            return self._check(sessions, seconds)

    def _begin(self) -> None:
        """Once every table is published, mark the place in the log from which on everything is ours."""
        shop.wait_until_published(self._source)
        self._follower.start()
        reader.mark(self._source, self._began)
        if not self._follower.wait_for(self._began, ARRIVAL_TIMEOUT):
            self._server.require_alive()
            raise PipelineError(f"no event has arrived within {ARRIVAL_TIMEOUT:.0f} s; see {self._server.log}")

    def _write(self, stack: ExitStack, seconds: float) -> list[RecordingSession]:
        opener = RecordingSession(self._config.source, "demo opener")
        stack.callback(opener.close)
        shop.open_shop(opener)
        closing = threading.Event()
        clerks = [Clerk(self._config.source, number, closing) for number in range(1, shop.CLERKS + 1)]
        stack.callback(_go_home, clerks, closing)
        sessions = [opener, *(clerk.session for clerk in clerks)]
        with screen.shown(self._console, shop.TABLES) as show:
            start = time.monotonic()
            for clerk in clerks:
                clerk.start()
            while time.monotonic() - start < seconds:
                show(self._snapshot(sessions, start, seconds, f"{shop.CLERKS} clerks at work"))
                self._require_health(clerks)
                time.sleep(_FRAME)
            _go_home(clerks, closing)
            reader.mark(self._source, self._ended)
            deadline = time.monotonic() + ARRIVAL_TIMEOUT
            while not self._follower.wait_for(self._ended, _FRAME) and time.monotonic() < deadline:
                show(self._snapshot(sessions, start, seconds, "waiting for the last commit"))
                self._require_health(clerks)
            show(self._snapshot(sessions, start, seconds, "closed, and all has arrived"))
        return sessions

    def _require_health(self, clerks: list[Clerk]) -> None:
        self._server.require_alive()
        for clerk in clerks:
            if clerk.failure:
                raise PipelineError(f"{clerk.name} cannot go on: {clerk.failure}")

    def _snapshot(self, sessions: list[RecordingSession], start: float, seconds: float, doing: str) -> Snapshot:
        if time.monotonic() - self._asked > 2 * _FRAME:
            self._status = status.read(self._config, self._pipeline)
            self._asked = time.monotonic()
        return Snapshot(
            elapsed=time.monotonic() - start,
            seconds=seconds,
            doing=doing,
            commits=sum(len(session.record.committed) for session in sessions),
            rollbacks=sum(len(session.record.silent) for session in sessions),
            events=len(self._follower.seqs),
            lag_bytes=self._status.lag_bytes,
            lag_seconds=self._status.lag_seconds,
            counts=dict(self._follower.counts),
            latest=reader.latest(self._pipeline, self._follower.marks[self._began], screen.ROWS),
        )

    def _check(self, sessions: list[RecordingSession], seconds: float) -> _Outcome:
        record = Record()
        for session in sessions:
            record.committed += session.record.committed
            record.silent |= session.record.silent
        marks, seqs = self._follower.marks, self._follower.seqs
        events = list(reader.read_events(self._pipeline, marks[self._began], marks.get(self._ended, sys.maxsize)))
        differences = verdict(record, events)
        if [event.seq for event in events] != list(seqs):
            differences.append("a reader that followed the log live saw other events than are in it now")
        if self._ended not in marks:
            differences.insert(0, f"the last commit has not arrived within {ARRIVAL_TIMEOUT:.0f} s")
        arrived = self._follower.arrived
        return _Outcome(
            differences=differences,
            commits=len(record.committed),
            changes=sum(len(transaction.changes) for transaction in record.committed),
            rollbacks=len(record.silent),
            savepoints=sum(session.savepoints for session in sessions),
            seconds=seconds,
            delays=[max(0.0, arrived[t.xid] - t.ended) for t in record.committed if t.xid in arrived],
            counts=dict(self._follower.counts),
        )


def _go_home(clerks: list[Clerk], closing: threading.Event) -> None:
    closing.set()
    for clerk in clerks:
        if clerk.is_alive():
            clerk.join(5)


def _report(console: Console, outcome: _Outcome, server: Server, folder: Path) -> int:
    console.print()
    if outcome.differences:
        console.print(f"[bold red]✗ {len(outcome.differences)} differences[/] between what was written and the log:")
        for difference in outcome.differences[:_SHOWN_DIFFERENCES]:
            console.print(f"  {difference}", markup=False)
        console.print(f"The log of the server is {_short(folder / 'serve.log')}; the data is kept.", markup=False)
        return 1
    cuts = statistics.quantiles(outcome.delays, n=100)
    console.print("[bold green]✓ every change arrived once, in order[/]")
    console.print(
        f"  {outcome.commits:,} commits of {shop.CLERKS} concurrent writers in {outcome.seconds:g} s, "
        f"{outcome.changes:,} changes: {screen.totals(outcome.counts)}.\n"
        f"  {outcome.rollbacks:,} transactions rolled back and {outcome.savepoints:,} times back to a savepoint: "
        "no trace of them in the log.\n"
        "  Count, order and every value are as the writers themselves wrote them down.\n"
        f"  From commit to a reader woken by NOTIFY: median {cuts[49] * 1000:.0f} ms, "
        f"99 of 100 within {cuts[98] * 1000:.0f} ms."
    )
    _invite(console, server, folder)
    return 0


def _invite(console: Console, server: Server, folder: Path) -> None:
    command = shlex.join([*_program(), "--data-dir", _short(folder), "serve"])
    console.print("\n[bold]Look at it yourself.[/] Start the server on this data, then connect in another terminal:\n")
    for line in (command, server.psql_command(databases.PIPELINE)):
        console.print(f"  {line}", markup=False)
    console.print("\n[bold]First queries[/]\n")
    console.print(db.sql("demo", "to_try").strip(), markup=False)
    console.print(f"\nThe shop is the database source: {server.psql_command(databases.SOURCE)}", markup=False)
    console.print("Change something there, and it is the next event.")


def _program() -> list[str]:
    """How this program was started."""
    name = Path(sys.argv[0])
    return [_short(Path(sys.executable)), "-m", "pipeline"] if name.name == "__main__.py" else [_short(name)]


def _short(path: Path) -> str:
    """As it is typed from here."""
    return os.path.relpath(path) if path.is_absolute() and path.is_relative_to(Path.cwd()) else str(path)
