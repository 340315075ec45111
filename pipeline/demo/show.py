"""The whole demo: Postgres, the shop, the server, the writers, the check, the queries to try."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import psycopg
from rich.console import Console

from pipeline.config import settings
from pipeline.config.settings import Config
from pipeline.demo import demo_followers, follower_clusters, reader, roles, screen, shop, stage, visitors
from pipeline.demo.closing import DemoResult, report, short
from pipeline.demo.demo_followers import FollowedShow
from pipeline.demo.reader import DemoReader
from pipeline.demo.recording import RecordingSession
from pipeline.demo.screen import ScreenState
from pipeline.demo.server import ServerProcess
from pipeline.demo.shop import ShopClerk
from pipeline.demo.verdict import WriterRecord, verdict
from pipeline.errors import EmbeddedPostgresError, PipelineError
from pipeline.operate import status
from pipeline.postgres import connections, databases
from pipeline.postgres.embedded import EmbeddedServer

ARRIVAL_TIMEOUT = 30.0
"""Seconds that the last commit may take to arrive."""
READING_TIMEOUT = 120.0
"""Seconds that the server may take for existing rows once the clerks have finished."""
_CLERK_TIMEOUT = 10.0
_FRAME = 0.25


def run(seconds: float, data_dir: Path, followers: int = 0) -> int:
    """Run the demo; returns 0 if every change arrived once and in order, 1 with the differences, 130 after Ctrl-C.

    With followers: 0 if each of them is equal to the source in the end.

    Settings of the environment and of pipeline.toml are ignored. The record of the writers is kept in memory, about
    1 kB for each change. Raises PipelineError if a part of the demo fails.
    """
    stage.forget_settings()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = screen.console()
    folder = data_dir.absolute()
    config = settings.from_json(json.dumps({"data_dir": str(folder)}))
    try:
        console.print(f"starting a Postgres and the server in {short(folder)}")
        with stage.alone(folder), stage.postgres(console, config) as (server, resolved):
            follower_clusters.forget(resolved, demo_followers.folder(resolved))
            shop.create(server.dsn(databases.SOURCE))
            filler = RecordingSession(roles.writing(resolved), "demo filler")
            shop.fill(filler)
            filler.close()
            console.print(f"the shop has {len(filler.record.before):,} existing rows")
            if followers:
                return _followed(console, resolved, followers, seconds)
            outcome = _Show(console, resolved, server, filler).run(seconds)
            return report(console, outcome, server, resolved)
    except EmbeddedPostgresError as error:
        raise EmbeddedPostgresError(str(error).replace("PIPELINE_DATA_DIR", "--data-dir")) from error
    except psycopg.Error as error:
        raise PipelineError(f"a database of the demo failed: {connections.one_line(error)}; see {folder}") from error
    except KeyboardInterrupt:
        console.print("\ninterrupted; the writers, the server and Postgres are stopped")
        return 130


def _followed(console: Console, config: Config, followers: int, seconds: float) -> int:
    with connections.connect(roles.writing(config), "source", name="demo") as source:
        visitors.create(source)
    return FollowedShow(console, config, followers).run(seconds)


class _Show:
    """The part of the demo in which the server and the writers run."""

    def __init__(self, console: Console, config: Config, postgres: EmbeddedServer, filler: RecordingSession) -> None:
        self._before = filler.record.before
        self._rows_read = self._whole = 0
        self._console = console
        self._postgres = postgres
        self._config = config
        self._began = f"{time.time_ns()} begin"
        self._ended = f"{time.time_ns()} end"
        self._status = status.PipelineStatus()
        self._asked = 0.0
        self._seen = [0] * (shop.CLERKS + 1)

    def run(self, seconds: float) -> DemoResult:
        """Start the server, write for `seconds`, wait for the last commit, check."""
        with ExitStack() as stack:
            self._server = ServerProcess(self._config)
            stack.callback(self._server.stop)
            self._server.wait_until_ready()
            self._console.print(
                f"the server is ready, with two small roles at the source; its log is {short(self._server.log)}\n"
                f"see it work in a browser: http://127.0.0.1:{self._server.port}/console/"
            )
            self._source = stack.enter_context(connections.connect(self._config.source, "source", name="demo"))
            self._pipeline = stack.enter_context(
                connections.connect(self._config.database, "pipeline database", name="demo")
            )
            self._follower = DemoReader(self._config.database, self._began)
            stack.callback(self._follower.stop)
            self._begin()
            sessions = self._write(stack, seconds)
            return self._check(sessions, seconds)

    def _begin(self) -> None:
        """Mark the place in the log after which all events belong to this run, once every table is published."""
        shop.wait_until_published(self._source)
        self._tables = shop.oids(self._source)
        self._follower.start()
        self._from_lsn = reader.mark(self._source, self._began)
        if not self._follower.wait_for(self._began, ARRIVAL_TIMEOUT):
            self._server.require_alive()
            raise PipelineError(f"no event has arrived within {ARRIVAL_TIMEOUT:.0f} s; see {self._server.log}")

    def _write(self, stack: ExitStack, seconds: float) -> list[RecordingSession]:
        opener = RecordingSession(roles.writing(self._config), "demo opener")
        stack.callback(opener.close)
        shop.open_shop(opener)
        closing = threading.Event()
        clerks = [ShopClerk(roles.writing(self._config), number, closing) for number in range(1, shop.CLERKS + 1)]
        stack.callback(_finish, clerks, closing)
        sessions = [opener, *(clerk.session for clerk in clerks)]
        with screen.shown(self._console, shop.TABLES) as show:
            start = time.monotonic()
            for clerk in clerks:
                clerk.start()
            while time.monotonic() - start < seconds:
                show(self._snapshot(sessions, start, seconds, f"{shop.CLERKS} clerks at work"))
                self._require_health(clerks)
                time.sleep(_FRAME)
            _finish(clerks, closing)
            deadline = time.monotonic() + READING_TIMEOUT
            while self._whole < len(shop.TABLES) and time.monotonic() < deadline:
                show(self._snapshot(sessions, start, seconds, "reading the existing rows"))
                self._require_health(clerks)
                time.sleep(_FRAME)
            self._require_health(clerks)
            self._to_lsn = reader.mark(self._source, self._ended)
            deadline = time.monotonic() + ARRIVAL_TIMEOUT
            while not (arrived := self._follower.wait_for(self._ended, _FRAME)) and time.monotonic() < deadline:
                show(self._snapshot(sessions, start, seconds, "waiting for the last commit"))
                self._require_health(clerks)
            self._asked = 0.0
            show(self._snapshot(sessions, start, seconds, "closed; every change has arrived" if arrived else "closed"))
        return sessions

    def _require_health(self, clerks: list[ShopClerk]) -> None:
        self._server.require_alive()
        threads: list[ShopClerk | DemoReader] = [*clerks, self._follower]
        for thread in threads:
            if thread.failure:
                raise PipelineError(f"{thread.name} failed: {thread.failure}")

    def _snapshot(self, sessions: list[RecordingSession], start: float, seconds: float, doing: str) -> ScreenState:
        if time.monotonic() - self._asked > 2 * _FRAME:
            self._status = status.read(self._config, self._pipeline)
            self._rows_read, self._whole = reader.rows_read(self._pipeline, self._tables)
            self._asked = time.monotonic()
        return ScreenState(
            elapsed=time.monotonic() - start,
            seconds=seconds,
            doing=doing,
            commits=sum(len(session.record.committed) for session in sessions),
            rollbacks=sum(len(session.record.silent) for session in sessions),
            events=len(self._follower.seqs),
            lag_bytes=self._status.lag_bytes,
            lag_seconds=self._oldest_unseen(sessions),
            counts=dict(self._follower.counts),
            latest=reader.latest(self._pipeline, self._follower.marks[self._began], screen.ROWS),
            read=len(self._before) if self._whole == len(shop.TABLES) else self._rows_read,
            to_read=len(self._before),
        )

    def _oldest_unseen(self, sessions: list[RecordingSession]) -> float:
        """Return the seconds since the first commit that has not arrived; 0 if all have."""
        oldest = now = time.monotonic()
        for place, session in enumerate(sessions):
            committed, seen = session.record.committed, self._seen[place]
            while seen < len(committed) and committed[seen].xid in self._follower.arrived:
                seen += 1
            self._seen[place] = seen
            oldest = min(oldest, committed[seen].ended if seen < len(committed) else now)
        return now - oldest

    def _check(self, sessions: list[RecordingSession], seconds: float) -> DemoResult:
        record = WriterRecord(before=self._before)
        for session in sessions:
            record.committed += session.record.committed
            record.silent |= session.record.silent
        record.commit_lsns = reader.commit_lsns(self._postgres, self._from_lsn, self._to_lsn)
        marks, seqs = self._follower.marks, self._follower.seqs
        events = list(
            reader.read_events(self._pipeline, marks[self._began], marks.get(self._ended, sys.maxsize), self._tables)
        )
        differences = verdict(record, events)
        if [event.seq for event in events if event.seq > marks[self._began]] != list(seqs):
            differences.append("a reader that followed the log live saw other events than are in it now")
        if self._ended not in marks:
            differences.insert(0, f"the last commit has not arrived within {ARRIVAL_TIMEOUT:.0f} s")
        arrived = self._follower.arrived
        return DemoResult(
            differences=differences,
            commits=len(record.committed),
            changes=sum(len(transaction.changes) for transaction in record.committed),
            rollbacks=len(record.silent),
            before=len(self._before),
            savepoints=sum(session.savepoints for session in sessions),
            seconds=seconds,
            delays=[max(0.0, arrived[t.xid] - t.ended) for t in record.committed if t.xid in arrived],
            counts=dict(self._follower.counts),
            in_wal=record.commit_lsns.keys() >= {transaction.xid for transaction in record.committed},
        )


def _finish(clerks: list[ShopClerk], closing: threading.Event) -> None:
    """Let the clerks finish their current task. Raises PipelineError if one does not: its record is incomplete."""
    closing.set()
    for clerk in clerks:
        if clerk.is_alive():
            clerk.join(_CLERK_TIMEOUT)
        if clerk.is_alive():
            raise PipelineError(f"{clerk.name} has waited {_CLERK_TIMEOUT:.0f} s for the source to answer")
