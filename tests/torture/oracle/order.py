"""The commit order of the source, read from its write-ahead log itself.

The WAL is what the source is: crash recovery, and every standby, replays exactly these records in exactly this order,
so the order of COMMIT and COMMIT_PREPARED records is the order in which transactions became durable. pg_waldump reads
the files as bytes. Nothing of logical decoding takes part: no slot, no snapshot builder, no output plugin. The position
of a record is what logical decoding calls a transaction's commit LSN, so that too is compared to the byte.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import psycopg

_RECORD = re.compile(
    r"tx: +(?P<xid>\d+), lsn: (?P<high>[0-9A-F]+)/(?P<low>[0-9A-F]+), .*desc: COMMIT(_PREPARED (?P<prepared>\d+):)? "
)


@dataclass(frozen=True)
class CommitRecord:
    """Of any database of the cluster."""

    xid: int
    lsn: int


@dataclass(frozen=True)
class Position:
    """A place in the WAL, the file of the byte before it and the file of the one after it."""

    lsn: str
    before: str
    after: str


def position(source: psycopg.Connection) -> Position:
    """How far the WAL is on disk: not before the last synchronous commit."""
    files = "pg_walfile_name(l - 1), pg_walfile_name(l + 1)"
    row = source.execute(f"select l::text, {files} from pg_current_wal_flush_lsn() as l").fetchone()
    assert row is not None
    return Position(*row)


def commits(pg_waldump: Path, pg_wal: Path, start: Position, end: Position) -> list[CommitRecord]:
    """Every commit record between two positions. The source must keep its WAL (wal_keep_size)."""
    # Without names of files it looks into any, for the size of segments, and fails where that one is just being made.
    places = ["--path", str(pg_wal), "--start", start.lsn, "--end", end.lsn]
    command = [str(pg_waldump), *places, "--rmgr", "Transaction", start.after, end.before]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"pg_waldump: {done.stderr}"
    return [_parse(found) for found in map(_RECORD.search, done.stdout.splitlines()) if found]


def _parse(found: re.Match[str]) -> CommitRecord:
    lsn = (int(found["high"], 16) << 32) + int(found["low"], 16)
    return CommitRecord(int(found["prepared"] or found["xid"]), lsn)
