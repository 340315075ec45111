"""Writes docs/benchmarks.md, the page for users: its figures and drawings come from the raw tables.

`python -m tests.benchmarks.user_page` writes them again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.benchmarks import page, plot
from tests.fixtures.generated import DOCS, GeneratedPart

RAW = DOCS / "internals" / "benchmarks.md"
PART = GeneratedPart(DOCS / "benchmarks.md", "figures")
SERVER, PEER, DEBEZIUM = "the server", "pg_recvlogical", "Debezium"
KINDS = {
    "bulk": "large transactions, rows of 8 columns",
    "small": "transactions of one row",
    "wide": "large transactions, rows of 1 KB",
}
PROGRAMS = {
    SERVER: "pipeline, to indexed sequin_events",
    PEER: "pg_recvlogical, to a file",
    DEBEZIUM: "Debezium Embedded 3.6.3, thrown away",
}
CLIENTS = {
    "the server, WebSocket": "pipeline, WebSocket",
    "Debezium, poll of 1 ms": "Debezium, tuned (1 ms)",
    "Debezium, default": "Debezium, default (500 ms)",
    "pg_recvlogical": "pg_recvlogical, a pipe",
}
PROCESSES = ("worker: peak MB", "shuffler: peak MB", "rest of the server: peak MB")
Figures = Mapping[tuple[str, str], str]


def figures() -> Figures:
    """Return the median of each figure in the raw tables, by its part and name."""
    return {(row[0], row[1]): row[2] for row in page.rows(RAW.read_text())}


def body(found: Figures) -> str:
    """Return the part of the page that holds figures."""
    machines = {_machine(found, kind) for kind in KINDS}
    rates = [
        (label, *(found[kind, f"{name}: changes/s"] for name in PROGRAMS.values())) for kind, label in KINDS.items()
    ]
    times = [
        (name, *(found["stream-latency", f"{raw}: commit to received, {figure}: ms"] for figure in _TIMES))
        for name, raw in CLIENTS.items()
    ]
    times.append(
        (
            "the server, SQL with `LISTEN`, 200 commits a second",
            *(found["latency", f"commit to visible, {figure}: ms"] for figure in _TIMES),
        )
    )
    memory = [(KINDS[kind], str(_server_memory(found, kind)), *_peer_memory(found, kind)) for kind in KINDS]
    return "\n\n".join(
        (
            f"Changes a second, median of three, on {' and '.join(sorted(machines))}:",
            _table(("backlog of", *PROGRAMS), rates),
            f"From commit to client, in ms, on {_machine(found, 'stream-latency')}:",
            _table(("client", *_TIMES), times),
            "The most memory at any time while reading the backlog, in MB, without the processes of Postgres:",
            _table(("backlog of", *PROGRAMS), memory),
        )
    )


def drawings(found: Figures) -> Mapping[str, str]:
    """Return the SVG text of each drawing by the name of its file."""
    rates = {
        label: {name: _number(found[kind, f"{raw}: changes/s"]) for name, raw in PROGRAMS.items()}
        for kind, label in KINDS.items()
    }
    medians = {
        name: _number(found["stream-latency", f"{raw}: commit to received, median: ms"])
        for name, raw in CLIENTS.items()
    }
    return {
        "benchmark-rates.svg": plot.bars("Changes a second: more is better", rates),
        "benchmark-latency.svg": plot.bars(
            "Milliseconds from commit to client: less is better", {"1,000 commits a second, median": medians}
        ),
    }


def write() -> None:
    """Write the part of the page and its drawings."""
    found = figures()
    PART.write(body(found))
    for name, text in drawings(found).items():
        (DOCS / name).write_text(text)


_TIMES = ("median", "99th percentile", "longest")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _number(figure: str) -> float:
    return float(figure.replace(",", ""))


def _machine(found: Figures, part: str) -> str:
    day, processor, _ = found[part, "measured on, processor, load before"].split(", ")
    return f"two cores of an {processor}, {day}"


def _server_memory(found: Figures, kind: str) -> int:
    return sum(int(_number(found[kind, name])) for name in PROCESSES)


def _peer_memory(found: Figures, kind: str) -> tuple[str, str]:
    return found[kind, "pg_recvlogical: peak MB"], found[kind, "Debezium's JVM: peak MB"]


if __name__ == "__main__":
    write()
