"""Prints followers: their states, positions, tables and settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.table import Table

from pipeline.followers.operating.release import Released
from pipeline.followers.operating.resync import Resync
from pipeline.followers.operating.skip_transaction import Skipped
from pipeline.followers.operating.status import Shown, ShownTable
from pipeline.followers.operating.waiting import Waited
from pipeline.printable import say
from pipeline.terminal import drawing
from pipeline.terminal.drawing import Text
from pipeline.wal import lsn

_STYLES = {"following": "green", "copying": "green", "waiting": "yellow", "paused": "yellow"}


def summary(found: Sequence[Shown]) -> Table:
    """For `status` and `list`: one line for each follower."""
    columns = ("follower", "state", "tables", "seq", "behind", "lag", "reason")
    return drawing.table(columns, map(_line, found))


def _line(each: Shown) -> list[object]:
    return [
        each.name,
        styled(each.state),
        _counted(each.tables),
        each.seq,
        drawing.count(each.lag_seqs, "seq"),
        drawing.lasted(each.lag_seconds),
        why(each.reason, each.remedy),
    ]


def show_followers(found: Sequence[Shown]) -> None:
    """Print all followers."""
    none = "there are no followers; add one: `pipeline followers add --dsn DSN`"
    drawing.show(summary(found) if found else none)


def show_follower(found: Shown) -> None:
    """Print one with its settings and its tables."""
    columns = ("table", "state", "reason")
    tables = ((each.table, styled(each.state), why(each.reason, each.remedy)) for each in found.tables)
    drawing.show(
        summary([found]),
        drawing.table(("", ""), ((drawing.dim(label), value) for label, value in _facts(found))),
        drawing.table(columns, tables) if found.tables else None,
    )


def show_waited(found: Waited) -> None:
    """Say that they have everything."""
    names = ", ".join(f'"{each.name}"' for each in found.followers)
    what = "follower" if len(found.followers) == 1 else "followers"
    has = "has" if len(found.followers) == 1 else "have"
    through = f"{lsn.show(found.committed_lsn)}, seq {found.seq}"
    say(f"{what} {names} {has} everything that was committed before {through} ({found.seconds:.1f} s)")


def show_skipped(found: Skipped) -> None:
    """Say what the follower does not have now, and how to see what follows from that."""
    seqs = f"seq {found.first_seq}" + (f" to {found.last_seq}" if found.last_seq > found.first_seq else "")
    tables = f" in {', '.join(found.tables)}" if found.tables else ""
    say(
        f'follower "{found.follower}" goes on without the transaction of {seqs}{tables}; '
        f"`pipeline followers verify {found.follower}` says what differs since"
    )


def show_resync(found: Resync) -> None:
    """Say which tables are copied anew, and which were to be copied anyway."""
    if found.tables:
        say(
            f'follower "{found.follower}" copies {", ".join(found.tables)} anew, and applies nothing to '
            f"{'it' if len(found.tables) == 1 else 'them'} after seq {found.seq} until then; "
            f"`pipeline followers wait {found.follower}` waits for it"
        )
    if found.copying:
        are = "is" if len(found.copying) == 1 else "are"
        say(f'{", ".join(found.copying)} of follower "{found.follower}" {are} being copied already')


def show_released(found: Released) -> None:
    """Say up to where it has everything, and which sequences were set."""
    where = f" ({lsn.show(found.commit_lsn)})" if found.commit_lsn is not None else ""
    say(f'follower "{found.follower}" is released: it has everything up to seq {found.seq}{where}')
    if found.sequences:
        rows = ([each.sequence, each.before, each.after] for each in found.sequences)
        drawing.show(drawing.table(("sequence", "gave next", "gives next"), rows))


def _facts(found: Shown) -> Iterator[tuple[str, object]]:
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


def styled(state: str) -> Text:
    """A state in its colour."""
    return Text(state, _STYLES.get(state, "bold red"))


def _counted(tables: Sequence[ShownTable]) -> str:
    """How many there are, of those in a state of their own how many."""
    states = Counter(each.state for each in tables)
    if len(states) < 2:
        return f"{len(tables):,}"
    return f"{len(tables):,}: " + ", ".join(f"{number:,} {state}" for state, number in sorted(states.items()))


def why(reason: str | None, remedy: str | None) -> str:
    """Reason and remedy in one line."""
    return "; ".join(part for part in (reason, remedy) if part)
