"""Where things are in a lake. Pure: names in, names out.

manifest.json                                  the head: up to which seq, and the newest part of each dataset
manifest/<schema>.<table>/<number>.json        a part: files of changes, and the full parts before it
changes/<schema>.<table>/date=2026-11-21/      the changes of a table, Parquet: a name of each file of that day
changes/<schema>.<table>/schema=2/date=…       its changes after an incompatible change of its columns
changes/<schema>.<table>/_common_metadata      the columns of all files of that version, in their widest types
current/<schema>.<table>/latest/               the table as it is now: a name of each file of its newest version
messages/date=…/                               logical messages
files/changes/<schema>.<table>/date=…/         the files themselves, by the paths that the manifest and Iceberg have
files/current/<schema>.<table>/v<seq>/         versions of current states, likewise
days/<number>/changes/<schema>.<table>/date=…/ what is to be exchanged with the folder of a day, or was until lately
.staging/                                      files that readers must not see yet
.set-aside/<number>/…                          what the ledger did not list when the log had jumped to that seq

In a bucket nothing has a name that a reader could guess: names are unique, and the manifest lists them.

changes/<schema>.<table>/date=2026-11-21/<first>-<last>-<unique>.parquet
current/<schema>.<table>/v<seq>/<unique>.parquet
manifest/current/<schema>.<table>/<version>.json   which of those are the table as of its seq
"""

from __future__ import annotations

import hashlib
import re

MANIFEST = "manifest.json"
MANIFEST_PART = "manifest/%s/%s.json"
STATE_PART = "manifest/current/%s/%s.json"
STAGING = ".staging"
SET_ASIDE = ".set-aside"
CURRENT = "current"
MESSAGES = "messages"
FILES = "files"
DAYS = "days"
LATEST = "latest"
"""The folder in which readers find a table's current state."""
CONVERTED = "converted"
"""The number of a new folder that takes the place of a link which a version before has made."""
UNTYPED = 0
"""Schema version of rows whose table has no known columns: a record as JSON text."""
_MOST_BYTES = 200
"""The longest name of a folder; file systems allow 255."""


def dataset(schema: str, table: str) -> str:
    """`schema.table`; characters with a meaning in a path, a Hive partition or a glob are written as %XX."""
    name = f"{_escaped(schema)}.{_escaped(table)}"
    if len(name.encode()) > _MOST_BYTES:
        digest = hashlib.sha256(f"{schema}\0{table}".encode()).hexdigest()[:16]
        name = f"{name.encode()[: _MOST_BYTES - 17].decode(errors='ignore')}~{digest}"
    return name


def changes(dataset: str, version: int = 1) -> str:
    """The folder of one schema version of a dataset; versions never share one."""
    base = MESSAGES if dataset == MESSAGES else f"changes/{dataset}"
    return base if version == 1 else f"{base}/schema={version}"


def change_file(dataset: str, version: int, date: str, first_seq: int, last_seq: int) -> str:
    """Path of a file of changes: their names sort as their seqs do."""
    return f"{FILES}/{changes(dataset, version)}/date={date}/{first_seq:020d}-{last_seq:020d}.parquet"


def merged_file(dataset: str, version: int, date: str, first_seq: int, last_seq: int, unique: str) -> str:
    """Path of a file that a compaction makes of others; `unique`: which, so that no other attempt writes to it."""
    path = change_file(dataset, version, date, first_seq, last_seq)
    return path.replace(".parquet", f"-m{unique}.parquet")


def day(path: str) -> str | None:
    """The folder where readers by glob find a file of changes; None: it is there itself, by a version before."""
    inner = path.removeprefix(f"{FILES}/")
    return None if inner == path else inner.rpartition("/")[0]


def day_view(folder: str, number: int | str) -> str:
    """Where a folder is made that readers are to find as `folder`, by the compaction of that number, or as of a seq.

    After the exchange it is where the old folder stays for a while.
    """
    return f"{DAYS}/{number}/{folder}"


def schema_file(dataset: str, version: int) -> str:
    """Path of a Parquet file without rows, where Spark looks for a dataset's columns; others skip `_…`."""
    return f"{changes(dataset, version)}/_common_metadata"


def manifest_part(dataset: str, number: int) -> str:
    """Path of a part of the manifest: which of a dataset's files are committed. A part never changes."""
    return MANIFEST_PART % (dataset, number)


def state_part(dataset: str, version: int) -> str:
    """Path of what the manifest of a lake in a bucket says of one version of a table's state."""
    return STATE_PART % (dataset, version)


def export_staging(export_id: int) -> str:
    """Where an export writes before it publishes."""
    return f"{STAGING}/export-{export_id}"


def set_aside(jump: int) -> str:
    """Where things are that the ledger did not list when the log had jumped to that seq."""
    return f"{SET_ASIDE}/{jump}"


def current(dataset: str) -> str:
    """The folder of a table's current state."""
    return f"{CURRENT}/{dataset}"


def latest(dataset: str) -> str:
    """The folder that has the newest version of a table's current state, and no other."""
    return f"{current(dataset)}/{LATEST}"


def _escaped(name: str) -> str:
    return re.sub(r"[^\w\-]", lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), name)
