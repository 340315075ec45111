"""What to wait for on a connection through the proxy, and what to do there."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from pipeline.postgres import queries
from tests.torture.faults import wire
from tests.torture.faults.wire import Message

FIRE_TIMEOUT = 60.0
"""Seconds that `Trap.wait` gives a trap: a point that is never reached is no test."""
ACT_TIMEOUT = 60.0


@dataclass(frozen=True)
class Seen:
    """A message on its way.

    `text`: the statement that it runs, if any, and `within`: the statements of its transaction so far, this one
    included. `advances`: it confirms more to the source than all before it.
    """

    frontend: bool
    message: Message
    text: str | None = None
    within: tuple[str, ...] = ()
    advances: bool = False


Matcher = Callable[[Seen], bool]


def opening(package: str, name: str) -> str:
    """Return a pattern for a statement of the product: its first line, a comment, which is sent with it."""
    return re.escape(queries.statement(package, name).splitlines()[0])


def statement(pattern: str, within: str = "") -> Matcher:
    """A statement whose text matches, in a transaction whose statements so far match `within`, taken together."""

    def matches(seen: Seen) -> bool:
        if seen.text is None or not re.search(pattern, seen.text):
            return False
        return re.search(within, "\n".join(seen.within), re.DOTALL) is not None

    return matches


def copy_chunk(seen: Seen) -> bool:
    """CopyData of the client."""
    return seen.frontend and seen.message.kind == b"d"


def confirmation(seen: Seen) -> bool:
    """A standby status update that confirms more than all before it."""
    return seen.advances


def streamed(kinds: bytes) -> Matcher:
    """A message of the replication stream of one of these pgoutput types (`b"IUD"`)."""

    def matches(seen: Seen) -> bool:
        kind = b"" if seen.frontend or seen.message.kind != b"d" else wire.change_kind(seen.message.payload)
        return bool(kind) and kind in kinds

    return matches


def _nothing() -> None:
    """For a trap that only says that it was reached."""


@dataclass(eq=False)
class Trap:
    """Holds the `nth` matching message of connections whose application_name begins with `connection`; fires once.

    `before`: the message is held while `act` runs in a thread, then passed on. `after`: a statement's answer is held
    until all of it has come (it has been executed then) and `act` has returned; any other message is passed on first.
    `then="cut"`: the connection is reset after `act`, and what was held is never passed on. `half`: of a message held
    before, the first half goes through at once. `keepalive`: from the open transaction's final_lsn to the wal_end of a
    keepalive that is put into the stream behind the message before `act` runs (with `when="after"`).
    """

    connection: str
    what: Matcher
    act: Callable[[], object] = _nothing
    nth: int = 1
    when: Literal["before", "after"] = "before"
    then: Literal["pass", "cut"] = "pass"
    half: bool = False
    keepalive: Callable[[int], int] | None = None
    fired: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None
    count: int = 0

    def springs(self, name: str, seen: Seen) -> bool:
        """Whether this is the message. Counts it."""
        if self.fired.is_set() or not name.startswith(self.connection) or not self.what(seen):
            return False
        self.count += 1
        if self.count == self.nth:
            self.fired.set()
        return self.fired.is_set()

    def run(self) -> None:
        """`act`, with what it raises kept for `wait`."""
        try:
            self.act()
        except BaseException as error:
            self.error = error
        finally:
            self.done.set()

    def wait(self, timeout: float = FIRE_TIMEOUT) -> None:
        """Until it has fired and `act` has returned; raises what that raised, AssertionError when it never fires."""
        assert self.fired.wait(timeout), f"never reached on {self.connection!r}: seen {self.count} of {self.nth}"
        assert self.done.wait(ACT_TIMEOUT), f"what is done on {self.connection!r} does not end"
        if self.error is not None:
            raise self.error
