"""Directed fault points: a place inside of a step, and what happens there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from tests.torture.faults import acts
from tests.torture.faults.traps import Matcher, confirmation, copy_chunk, opening, statement, streamed
from tests.torture.stage import Stage, Way
from tests.torture.writers.script import Script

STAGING, SHUFFLE, CONTROL, STREAM = "pipeline staging", "pipeline shuffle", "pipeline replication", "pipeline "
"""Whose connection: the stream's name continues with the source's id."""
LARGE = 5 * acts.BATCH
"""Rows of a transaction that takes several staging commits and segments."""

_STORED = r"execute store_batch_\d"
_CLAIMED, _MOVED_ON = opening("log.staging", "claim_progress"), opening("log.writing", "store_position")
_DURABLY = "synchronous_commit = on"
_MOVED = rf"\A(?!prepare )(?s:.*)({opening('log.shuffling', 'move_segment')}|execute move_segment_\d)"
_EMPTIED = "truncate only"
_WRITING, _WRITTEN = opening("log.staging.frontier", "begin_at_head"), opening("log.writing", "end_at_head")
_COPYING, _COPIED = r"execute begin_at_head_\d", r"execute end_at_head_\d"
"""Of few rows all is one message; of more the rows come behind the answer to what they begin with."""
_TABLE, _INDEXES, _RECORDED = (
    "autovacuum_enabled = off",
    "add primary key",
    opening("log.writing", "commit_tables"),
)
_ATTACH = "drop constraint adopted_seqs"
_COMMIT, _INSERT_RELATION = "(?m)^COMMIT", "insert into pipeline.relations"
_FIRST, _BEGUN = opening("log.staging", "begin_progress"), opening("log.staging.frontier", "begin_run")


def _small(script: Script) -> None:
    script.small()


def _large(script: Script) -> None:
    script.large(LARGE)


def _segment(script: Script) -> None:
    """A transaction that becomes its own partition."""
    script.large(24)


def _nothing(script: Script) -> None:
    """The prepared load continues by itself."""


@dataclass(frozen=True)
class Place:
    """Where: the `nth` message of that kind on a connection; `at_source`: one to the source.

    `provoke` commits what leads there. `paced`: the stream waits after this many staging commits of a large transaction
    until the fault is over. `answered`: a statement's answer, or what comes after any other message. `first`: what must
    have come about before the fault strikes. `fresh`: of a server's first start. `way`: what its server does with small
    batches.
    """

    name: str
    connection: str
    what: Matcher
    provoke: Callable[[Script], object] = _small
    nth: int = 1
    answered: bool = False
    at_source: bool = False
    half: bool = False
    paced: int = 0
    keepalive: Literal["", "commit", "end"] = ""
    prepare: Callable[[Stage], object] | None = None
    first: Callable[[Stage], object] | None = None
    fresh: bool = False
    way: Way = "staged"


@dataclass(frozen=True)
class Point:
    """A place and what happens there."""

    place: Place
    fault: acts.Fault

    @property
    def is_long(self) -> bool:
        """Whether it is left to `make long`: a fault that others of its kind stand for."""
        point = self.place, self.fault
        return point in LONG if self.place.way == "staged" else point not in QUICK

    @property
    def name(self) -> str:
        """As a sentence."""
        return f"{self.fault.name} {self.place.name}"


_STAGED = statement(_COMMIT, within=_STORED)

BEFORE_STAGING = Place("before it begins to stage", STAGING, statement("^BEGIN"))
BEFORE_COPY = Place("before the rows of a COPY", STAGING, copy_chunk)
IN_COPY = Place("in the middle of a COPY", STAGING, copy_chunk, _large, nth=5, half=True)
BEFORE_PROGRESS = Place("before progress is stored", STAGING, statement(_STORED))
BEFORE_STAGED = Place("before the staging commit", STAGING, _STAGED)
STAGED = Place("after the staging commit", STAGING, _STAGED, answered=True)
HALF_STAGED = Place("with a transaction half staged", STAGING, _STAGED, provoke=_large, nth=2, answered=True, paced=2)
BEFORE_CONFIRMED = Place("between a durable commit and its confirmation", STREAM, confirmation, at_source=True)
CONFIRMED = Place(
    "after the confirmation", STREAM, confirmation, answered=True, at_source=True, first=acts.see_confirmed
)
BEFORE_MOVED_ON = Place(
    "before an idle position is stored", STAGING, statement(_COMMIT, within=_MOVED_ON), Script.elsewhere
)
MOVED_ON = Place(
    "after an idle position was stored",
    STAGING,
    statement(_COMMIT, within=_MOVED_ON),
    Script.elsewhere,
    answered=True,
)
BEFORE_CLAIMED = Place(
    "before the commit of its claim",
    STAGING,
    statement(_COMMIT, within=_CLAIMED),
    _nothing,
    prepare=acts.leave_half_staged,
)
CLAIMED = Place(
    "after the commit of its claim",
    STAGING,
    statement(_COMMIT, within=_CLAIMED),
    _nothing,
    answered=True,
    prepare=acts.leave_half_staged,
)
REMOVING = Place(
    "while half staged rows are removed",
    STAGING,
    statement("^delete from only"),
    _nothing,
    answered=True,
    prepare=acts.leave_half_staged,
)
BEFORE_RECORDED = Place("before a relation is recorded", CONTROL, statement(_INSERT_RELATION), Script.alter)
RECORDED = Place("after a relation was recorded", CONTROL, statement(_INSERT_RELATION), Script.alter, answered=True)
SLOT_MADE = Place(
    "between the slot's creation and the first position", CONTROL, statement(_FIRST), _nothing, fresh=True
)
FIRST_STORED = Place(
    "after the first position was stored", CONTROL, statement(_FIRST), _nothing, answered=True, fresh=True
)
BEFORE_INSERT = Place("before the shuffler's insert", SHUFFLE, statement(_MOVED))
INSERTED = Place("after the shuffler's insert", SHUFFLE, statement(_MOVED), answered=True)
SECOND_INSERT = Place("between two inserts of one run", SHUFFLE, statement(_MOVED), _large, nth=2)
BEFORE_SHUFFLED = Place("before the shuffler's commit", SHUFFLE, statement(_COMMIT, within=_MOVED))
SHUFFLED = Place(
    "after the shuffler's commit", SHUFFLE, statement(_COMMIT, within=_MOVED), answered=True, first=Stage.see_more
)
AHEAD = Place(
    "while a large transaction is moved ahead", SHUFFLE, statement(_MOVED), _large, nth=2, answered=True, paced=4
)
BEFORE_EMPTIED = Place("before the TRUNCATE of a drained segment", SHUFFLE, statement("^" + _EMPTIED), _large)
EMPTIED = Place("before the commit of that TRUNCATE", SHUFFLE, statement(_COMMIT, within=_EMPTIED), _large)
FREED = Place("after the commit of that TRUNCATE", SHUFFLE, statement(_COMMIT, within=_EMPTIED), _large, answered=True)
ATTACHING = Place(
    "while a partition is attached",
    SHUFFLE,
    statement("attach partition"),
    answered=True,
    prepare=acts.fill_the_partition,
)
STREAMING = Place("in the middle of a transaction", STREAM, streamed(b"I"), _large, nth=LARGE // 2, at_source=True)
BEFORE_TRUNCATE = Place("before a truncate comes", STREAM, streamed(b"T"), Script.truncate, at_source=True)
TRUNCATED = Place("after a truncate has come", STREAM, streamed(b"T"), Script.truncate, answered=True, at_source=True)
ASKED_WITH_COMMIT = Place(
    "after a keepalive in an open transaction",
    STREAM,
    streamed(b"I"),
    acts.two_transactions,
    nth=3,
    answered=True,
    at_source=True,
    keepalive="commit",
    first=acts.tempt,
)
ASKED_WITH_END = Place(
    "after a keepalive with the end of the WAL in an open transaction",
    STREAM,
    streamed(b"I"),
    acts.two_transactions,
    nth=3,
    answered=True,
    at_source=True,
    keepalive="end",
    first=acts.tempt,
)
BEFORE_WRITING = Place("before a batch is written at once", STAGING, statement(_WRITING), way="at_once")
COPYING = Place(
    "between progress and rows of a batch", STAGING, statement(_COPYING), _segment, answered=True, way="at_once"
)
BEFORE_COPIED = Place("before the commit of rows copied at once", STAGING, statement(_COPIED), _segment, way="at_once")
BEFORE_WRITTEN = Place("before the commit of rows written at once", STAGING, statement(_WRITTEN), way="at_once")
WRITTEN = Place(
    "after the commit of rows written at once",
    STAGING,
    statement(_WRITTEN),
    answered=True,
    way="at_once",
    first=Stage.see_more,
)


def _adopting(name: str, connection: str, what: Matcher, **given: Any) -> Place:
    return Place(name, connection, what, _segment, way="adopt", **given)


BEFORE_RUN = _adopting("before a backlog begins", STAGING, statement(_BEGUN))
RUN = _adopting("after a backlog has begun", STAGING, statement(_BEGUN), answered=True)
TABLE = _adopting("after the table of a segment is made", STAGING, statement(_TABLE), answered=True)
IN_SEGMENT = _adopting("in the middle of the rows of a segment", STAGING, copy_chunk, half=True)
BEFORE_INDEXES = _adopting("before a segment gets its indexes", STAGING, statement(_INDEXES))
INDEXED = _adopting("after a segment got its indexes", STAGING, statement(_INDEXES), answered=True)
RECORDED_SEGMENT = _adopting("after a segment is recorded", STAGING, statement(_RECORDED), answered=True)
BEFORE_SEGMENT = _adopting("before the commit of a segment", STAGING, statement(_COMMIT, within=_RECORDED))
SEGMENT = _adopting("after the commit of a segment", STAGING, statement(_COMMIT, within=_RECORDED), answered=True)
BEFORE_ATTACHED = _adopting("before a segment is attached", SHUFFLE, statement(_ATTACH))
ATTACHED = _adopting("after a segment is attached", SHUFFLE, statement(_ATTACH), answered=True)
BEFORE_ADOPTED = _adopting("before the commit of an attached segment", SHUFFLE, statement(_COMMIT, within=_ATTACH))
ADOPTED = _adopting(
    "after the commit of an attached segment",
    SHUFFLE,
    statement(_COMMIT, within=_ATTACH),
    answered=True,
    first=Stage.see_more,
)

_WORKER, _SHUFFLER, _SERVER = acts.WORKER_KILLED, acts.SHUFFLER_KILLED, acts.SERVER_KILLED
_LOG, _SOURCE, _BOTH, _CUT = acts.LOG_CRASHES, acts.SOURCE_CRASHES, acts.BOTH_CRASH, acts.CUT

QUICK = ((BEFORE_WRITTEN, _LOG), (BEFORE_ADOPTED, _LOG))
"""Those of the other ways that `make test` plays too: what is half written there, with a whole server around it. Kills
and fencing have separate tests, in test_head_writer.py and test_adopted_segments.py."""
LONG = (
    *((BEFORE_INSERT, _SHUFFLER), (AHEAD, _WORKER), (FIRST_STORED, _WORKER)),
    *((BEFORE_STAGED, acts.WORKER_FROZEN), (BEFORE_CLAIMED, acts.WORKER_FROZEN)),
    *((CLAIMED, _CUT), (BEFORE_EMPTIED, _SHUFFLER), (FREED, _SHUFFLER), (BEFORE_RECORDED, _WORKER)),
    *((STREAMING, _WORKER), (BEFORE_COPY, _WORKER), (BEFORE_SHUFFLED, _SHUFFLER), (STAGED, _LOG)),
    *((BEFORE_CONFIRMED, _WORKER), (MOVED_ON, _WORKER), (REMOVING, _WORKER), (BEFORE_TRUNCATE, _CUT)),
    *((ASKED_WITH_COMMIT, _WORKER),),
)
"""Those of staged batches that it does not: another fault strikes there, or this one a statement before or after."""
POINTS = tuple(
    Point(place, fault)
    for place, *faults in (
        (SLOT_MADE, _WORKER),
        (BEFORE_COPY, _WORKER),
        (BEFORE_INSERT, _SHUFFLER),
        (IN_COPY, _WORKER),
        (INSERTED, _CUT),
        (BEFORE_STAGING, acts.WORKER_FROZEN),
        (SECOND_INSERT, _SHUFFLER),
        (BEFORE_PROGRESS, _CUT),
        (BEFORE_SHUFFLED, _SHUFFLER),
        (BEFORE_STAGED, _WORKER, acts.WORKER_FROZEN),
        (SHUFFLED, _SHUFFLER, _LOG),
        (STAGED, _WORKER, _LOG, _SERVER),
        (HALF_STAGED, _WORKER),
        (BEFORE_CONFIRMED, _WORKER, _BOTH),
        (CONFIRMED, _LOG),
        (BEFORE_MOVED_ON, _WORKER),
        (MOVED_ON, _WORKER),
        (AHEAD, _WORKER, _SHUFFLER),
        (FIRST_STORED, _WORKER),
        (BEFORE_CLAIMED, _WORKER, acts.WORKER_FROZEN),
        (BEFORE_EMPTIED, _SHUFFLER),
        (CLAIMED, _CUT),
        (REMOVING, _WORKER),
        (BEFORE_SHUFFLED, acts.SHUFFLER_FROZEN),
        (BEFORE_RECORDED, _WORKER),
        (EMPTIED, _SHUFFLER),
        (RECORDED, _CUT),
        (FREED, _SHUFFLER),
        (ATTACHING, _SHUFFLER),
        (STREAMING, _WORKER, _SOURCE),
        (BEFORE_TRUNCATE, _CUT),
        (TRUNCATED, _WORKER),
        (ASKED_WITH_COMMIT, _WORKER),
        (ASKED_WITH_END, _WORKER),
        (BEFORE_WRITING, acts.WORKER_FROZEN, _CUT),
        (COPYING, _WORKER, _LOG, acts.WORKER_FROZEN),
        (BEFORE_COPIED, _LOG, _CUT),
        (BEFORE_WRITTEN, _LOG, _WORKER, _CUT, _SHUFFLER, acts.WORKER_FROZEN),
        (WRITTEN, _WORKER, _LOG, _CUT, _SERVER, _BOTH),
        (RECORDED_SEGMENT, _WORKER, _LOG, acts.WORKER_FROZEN),
        (BEFORE_ADOPTED, _LOG, _SHUFFLER, acts.SHUFFLER_FROZEN),
        (BEFORE_RUN, _WORKER, acts.WORKER_FROZEN),
        (RUN, _WORKER, _LOG, acts.WORKER_FROZEN),
        (TABLE, _WORKER, _CUT),
        (IN_SEGMENT, _WORKER, _LOG),
        (BEFORE_INDEXES, _WORKER, acts.WORKER_FROZEN),
        (INDEXED, _WORKER, _LOG, _SOURCE),
        (BEFORE_SEGMENT, _WORKER, _CUT, acts.WORKER_FROZEN),
        (SEGMENT, _WORKER, _LOG, _SERVER, _BOTH),
        (BEFORE_ATTACHED, _SHUFFLER, acts.SHUFFLER_FROZEN),
        (ATTACHED, _SHUFFLER, _LOG, _CUT),
        (ADOPTED, _SHUFFLER, _LOG, _SERVER),
    )
    for fault in faults
)
BY_NAME = {point.name: point for point in POINTS}
