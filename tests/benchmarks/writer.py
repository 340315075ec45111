"""A paced writer, in its own process so that it keeps its pace.

python -m tests.benchmarks.writer DSN AFTER COMMITS PACE: inserts this many rows into bench_rows, the first of number
AFTER + 1, one a transaction, PACE a second; at the end prints "KEY MICROSECONDS" of each: when its COMMIT had returned,
by the clock of all programs here.
"""

from __future__ import annotations

import sys
import threading
import time

import psycopg

from tests.benchmarks.backlog import ROW

CONNECTIONS = 4
"""They take turns, since one has to wait for the disk at every commit."""
_INSERT = f"insert into bench_rows select {ROW.format('%(id)s::int')}".replace("% ", "%% ")


def main(dsn: str, after: int, commits: int, pace: float) -> None:
    committed = [0] * (commits + 1)
    begin = time.monotonic() + 0.2
    writers = [
        threading.Thread(
            target=_write, args=(dsn, after, range(first, commits + 1, CONNECTIONS), pace, begin, committed)
        )
        for first in range(1, CONNECTIONS + 1)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    sys.stdout.writelines(f"{number + after} {at}\n" for number, at in enumerate(committed) if at)


def _write(dsn: str, after: int, numbers: range, pace: float, begin: float, committed: list[int]) -> None:
    """Commit at fixed times, late or not."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for number in numbers:
            time.sleep(max(0.0, begin + number / pace - time.monotonic()))
            connection.execute(_INSERT, {"id": number + after}, prepare=True)
            committed[number] = time.time_ns() // 1000


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
