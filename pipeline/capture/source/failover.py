"""Reports whether the next failover of the source leaves a gap. Each host of the DSN is asked for our slot."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pipeline.errors import PipelineError
from pipeline.postgres import connections, queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

HOST_SECONDS = 1.0
"""Seconds that each host has to answer; all are asked at once."""
EVERY_SECONDS = 30.0
"""Seconds between two readings of a server."""


@dataclass(frozen=True)
class FailoverProblem:
    """A cause for which the next failover leaves a gap, or may leave one, and what to do."""

    text: str
    remedy: str


@dataclass(frozen=True)
class FailoverReport:
    """`ready`: True if each standby that answers has a copy of the slot, False if one of them lacks it.

    None: not known, because no standby answers, or the version has no such copies.
    """

    ready: bool | None
    problems: Sequence[FailoverProblem] = ()


@dataclass(frozen=True)
class AwaitedStandbys:
    """The standbys of `synchronized_standby_slots`, for which the source waits before it sends changes.

    `is_set`: None before Postgres 17. `away`: the listed slots that no standby reads. `upto`: the LSN that all listed
    standbys have, None if the list is empty.
    """

    is_set: bool | None
    away: list[str]
    upto: int | None


@dataclass(frozen=True)
class _Host:
    """A host's answer; the fields are those of failover_host.sql."""

    standby: bool
    cluster: str
    started: str
    syncs: bool | None
    feedback: bool
    has_physical_slot: bool
    conninfo: str | None
    has_slot: bool
    failover: bool | None
    synced: bool | None
    temporary: bool
    lost: bool


def read(dsn: str, slot: str) -> FailoverReport | None:
    """Ask all hosts of the DSN at once, for HOST_SECONDS; None if it names only one host."""
    named = _hosts(dsn)
    if len(named) < 2:
        return None
    with ThreadPoolExecutor(len(named)) as pool:
        found = dict(zip(named, pool.map(partial(_ask, slot=slot), named.values()), strict=True))
    servers = {each.started: (name, each) for name, each in found.items() if isinstance(each, _Host)}
    answers = dict(servers.values())  # a server with two names in the DSN counts once
    problems = [FailoverProblem(f"{name}: {why}", "") for name, why in found.items() if isinstance(why, str)]
    primaries = [name for name, answer in answers.items() if not answer.standby]
    if len(primaries) > 1 and len({answers[name].cluster for name in primaries}) == 1:
        text = f"{' and '.join(primaries)} are both primaries, and the server may read the wrong one"
        problems.append(FailoverProblem(text, "stop the former primary, or let it follow the new one"))
    ours = next((answers[name].cluster for name in [*primaries, *answers]), None)  # libpq takes the first primary
    lacking: list[FailoverProblem] = []
    for name, answer in answers.items():
        if answer.cluster != ours:
            problems.append(FailoverProblem(f"{name} belongs to another cluster", "remove it from PIPELINE_SOURCE_DSN"))
        elif answer.standby:
            lacking += _lacking(name, answer, slot)
        elif answer.has_slot and answer.failover is False:
            lacking.append(no_failover(slot))
    standbys = [each for each in answers.values() if each.standby and each.cluster == ours]
    known = bool(standbys) and all(each.syncs is not None for each in standbys)
    return FailoverReport(not lacking if known else None, [*problems, *lacking])


def read_awaited(source: Connection) -> AwaitedStandbys:
    """Return the standbys for which the source waits."""
    return queries.rows(source, AwaitedStandbys, statement("capture.source", "standbys_waited_for"))[0]


def no_failover(slot: str) -> FailoverProblem:
    """Return the problem of a slot without `failover`, at a source that has this option."""
    text = f'slot "{slot}" was made without failover: no standby keeps a copy, and a failover leaves a gap'
    return FailoverProblem(text, "start the server again, which turns failover on; its log says if the source refuses")


def _hosts(dsn: str) -> dict[str, str]:
    """Return a DSN for each host, by the host's name and port."""
    given = conninfo_to_dict(dsn)
    lists = {name: str(given[name]).split(",") for name in ("host", "hostaddr", "port") if given.get(name)}
    found = {}
    for number in range(max((len(values) for values in lists.values()), default=0)):
        own = {name: values[number if len(values) > 1 else 0] for name, values in lists.items()}
        shown = f"{own.get('host') or own.get('hostaddr')}:{own.get('port') or '5432'}"
        found[shown] = make_conninfo(dsn, **own, target_session_attrs="any")
    return found


def _ask(dsn: str, slot: str) -> _Host | str:
    """Return the host's answer, or why there is none."""
    until = time.monotonic() + HOST_SECONDS
    try:
        with (
            connections.connect_promptly(dsn, "source", name="pipeline failover", seconds=HOST_SECONDS) as host,
            connections.limited(host, dsn, "source", max(0.1, until - time.monotonic())),
        ):
            answer = queries.one(host, _Host, statement("capture.source", "failover_host"), {"slot": slot})
    except (PipelineError, psycopg.Error) as error:
        return connections.one_line(error)
    assert answer is not None  # noqa: S101  a query of one row
    return answer


def _lacking(name: str, host: _Host, slot: str) -> Iterator[FailoverProblem]:
    """Yield what a standby lacks to have a copy of our slot."""
    if host.syncs is None:
        text = (
            f"{name} runs a version without failover slots: a failover leaves a gap, unless an extension copies slots"
        )
        yield FailoverProblem(text, "upgrade it to Postgres 17 or newer")
        return
    if host.has_slot and not host.synced:
        text = f'{name} keeps its own slot "{slot}", from when it was the primary, and cannot copy the primary\'s'
        yield FailoverProblem(text, f"run at {name}: select pg_drop_replication_slot('{slot}')")
    unset = [
        setting
        for setting, is_set in (
            ("sync_replication_slots = on", host.syncs),
            ("hot_standby_feedback = on", host.feedback),
            ("primary_slot_name", host.has_physical_slot),
            ("dbname in primary_conninfo", host.conninfo is None or _names_database(host.conninfo)),
        )
        if not is_set
    ]
    if unset:
        yield FailoverProblem(f"{name} cannot copy slots without {' and '.join(unset)}", f"set that at {name}")
    elif host.has_slot and host.synced and (host.temporary or host.lost):
        state = "lost" if host.lost else "not complete yet"
        yield FailoverProblem(f'the copy of slot "{slot}" at {name} is {state}', f"see the log of {name}")
    elif not host.has_slot:
        yield FailoverProblem(f'{name} has no copy of slot "{slot}"', f"see the log of {name}")


def _names_database(conninfo: str) -> bool:
    try:
        return bool(conninfo_to_dict(conninfo).get("dbname"))
    except psycopg.Error:
        return False


class FailoverWatch:
    """Reads the report in a thread, so that no look at the source waits for hosts that are down. For one thread."""

    def __init__(self) -> None:
        self._known: FailoverReport | None = None
        self._until = float("-inf")
        self._thread: threading.Thread | None = None

    def begin(self, dsn: str, slot: str) -> None:
        """Begin a reading if one is due and none runs, unless the DSN names only one host."""
        if time.monotonic() < self._until or (self._thread and self._thread.is_alive()) or len(_hosts(dsn)) < 2:
            return
        self._until = time.monotonic() + EVERY_SECONDS
        self._thread = threading.Thread(target=self._read, args=(dsn, slot), name="failover", daemon=True)
        self._thread.start()

    def result(self) -> FailoverReport | None:
        """Return the newest report. Waits for the first one, for at most HOST_SECONDS."""
        if self._known is None and self._thread is not None:
            self._thread.join(HOST_SECONDS)
        return self._known

    def _read(self, dsn: str, slot: str) -> None:
        self._known = read(dsn, slot)
