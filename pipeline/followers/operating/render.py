"""Prints followers: their states, positions, tables and settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.table import Table

from pipeline.followers.operating.release import ReleasedFollower
from pipeline.followers.operating.resync import RequestedResync
from pipeline.followers.operating.skip_transaction import SkippedTransaction
from pipeline.followers.operating.status import FollowerStatus, FollowerTableStatus
from pipeline.followers.operating.waiting import WaitResult
from pipeline.printable import say
from pipeline.terminal import drawing
from pipeline.terminal.drawing import EscapedText
from pipeline.wal import lsn

_STYLES = {"following": "green", "copying": "green", "waiting": "yellow", "paused": "yellow"}


def summary(found: Sequence[FollowerStatus]) -> Table:
    """Return a table for `status` and `list`, with one line for each follower."""
    columns = ("follower", "state", "tables", "seq", "behind", "lag", "reason")
    return drawing.table(columns, map(_line, found))


def has_problem(each: FollowerStatus) -> bool:
    """True if a follower or one of its tables does not follow: it is copying, waiting, paused or stopped."""
    return each.state != "following" or any(table.state != "following" for table in each.tables)


def _line(each: FollowerStatus) -> list[object]:
    return [
        each.name,
        style_state(each.state),
        _count_tables(each.tables),
        each.seq,
        drawing.count(each.lag_seqs, "seq"),
        drawing.lasted(each.lag_seconds),
        join_remedy(each.reason, each.remedy),
    ]


def show_followers(found: Sequence[FollowerStatus]) -> None:
    """Print all followers."""
    none = "there are no followers; add one: `pipeline followers add --dsn DSN`"
    drawing.show(summary(found) if found else none)


def show_follower(found: FollowerStatus) -> None:
    """Print one follower with its settings and its tables."""
    columns = ("table", "state", "reason")
    tables = ((each.table, style_state(each.state), join_remedy(each.reason, each.remedy)) for each in found.tables)
    drawing.show(
        summary([found]),
        drawing.table(("", ""), ((drawing.dim(label), value) for label, value in _facts(found))),
        drawing.table(columns, tables) if found.tables else None,
    )


def show_waited(found: WaitResult) -> None:
    """Print that the followers have everything."""
    names = ", ".join(f'"{each.name}"' for each in found.followers)
    what = "follower" if len(found.followers) == 1 else "followers"
    has = "has" if len(found.followers) == 1 else "have"
    through = f"{lsn.show(found.committed_lsn)}, seq {found.seq}"
    say(f"{what} {names} {has} everything that was committed before {through} ({found.seconds:.1f} s)")


def show_skipped(found: SkippedTransaction) -> None:
    """Print which transaction the follower lacks, and how to see the differences."""
    seqs = f"seq {found.first_seq}" + (f" to {found.last_seq}" if found.last_seq > found.first_seq else "")
    tables = f" in {', '.join(found.tables)}" if found.tables else ""
    say(
        f'follower "{found.follower}" continues and lacks the transaction of {seqs}{tables}; '
        f"`pipeline followers verify {found.follower}` says what differs since"
    )


def show_resync(found: RequestedResync) -> None:
    """Print which tables are copied again, and which were being copied already."""
    if found.tables:
        say(
            f'follower "{found.follower}" copies {", ".join(found.tables)} again, and applies no event after '
            f"seq {found.seq} to {'it' if len(found.tables) == 1 else 'them'} until the copy is complete; "
            f"`pipeline followers wait {found.follower}` waits for it"
        )
    if found.copying:
        are = "is" if len(found.copying) == 1 else "are"
        say(f'{", ".join(found.copying)} of follower "{found.follower}" {are} being copied already')


def show_released(found: ReleasedFollower) -> None:
    """Print up to which seq the follower has everything, and which sequences were set."""
    where = f" ({lsn.show(found.commit_lsn)})" if found.commit_lsn is not None else ""
    say(f'follower "{found.follower}" is released: it has everything up to seq {found.seq}{where}')
    if found.sequences:
        rows = ([each.sequence, each.before, each.after] for each in found.sequences)
        drawing.show(drawing.table(("sequence", "gave next", "gives next"), rows))


def _facts(found: FollowerStatus) -> Iterator[tuple[str, object]]:
    yield "database", found.database
    yield "tables", ", ".join(found.patterns) or "all that are captured"
    yield "copy", found.copy + (", tables with rows are emptied" if found.truncate else "")
    yield "schema", found.schema
    yield "ddl", found.ddl
    yield "on rewrite", found.on_rewrite
    yield "last commit", drawing.position(found.commit_lsn)
    yield "committed", found.committed_at
    yield "added", found.made_at
    yield "reported", found.reported_at


def style_state(state: str) -> EscapedText:
    """Return a state in its color."""
    return EscapedText(state, _STYLES.get(state, "bold red"))


def _count_tables(tables: Sequence[FollowerTableStatus]) -> str:
    """Return the number of tables, and how many are in each state if the states differ."""
    states = Counter(each.state for each in tables)
    if len(states) < 2:
        return f"{len(tables):,}"
    return f"{len(tables):,}: " + ", ".join(f"{number:,} {state}" for state, number in sorted(states.items()))


def join_remedy(reason: str | None, remedy: str | None) -> str:
    """Return reason and remedy in one line."""
    return "; ".join(part for part in (reason, remedy) if part)
