"""Names the paths in a lake. Pure: names in, names out.

manifest.json                                  the head: up to which seq, and the newest part of each dataset
manifest/<schema>.<table>/<number>.json        a part: files of changes, and the full parts before it
changes/<schema>.<table>/date=2026-11-21/      the changes of a table, Parquet: a name of each file of that day
changes/<schema>.<table>/schema=2/date=…       its changes after an incompatible change of its columns
changes/<schema>.<table>/_common_metadata      the columns of all files of that version, in their widest types
current/<schema>.<table>/latest/               the table as it is now: a name of each file of its newest version
messages/date=…/                               logical messages
files/changes/<schema>.<table>/date=…/         the files themselves, at the paths that the manifest and Iceberg have
files/current/<schema>.<table>/v<seq>/         versions of current states, at such paths
days/<number>/changes/<schema>.<table>/date=…/ a folder before or after its exchange with the folder of a day
.staging/                                      files that readers must not see yet
.set-aside/<number>/…                          files that the ledger did not list when the log had jumped to that seq

In a bucket, no reader can guess names: they are unique, and the manifest lists them.

changes/<schema>.<table>/date=2026-11-21/<first>-<last>-<unique>.parquet
current/<schema>.<table>/v<seq>/<unique>.parquet
manifest/current/<schema>.<table>/<version>.json   the files that are the table as of its seq
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
"""The number of a new folder that replaces a link of an earlier server version."""
UNTYPED = 0
"""The schema version of rows whose table has no known columns: a record as JSON text."""
_MOST_BYTES = 200
"""Bytes of the longest name of a folder; file systems allow 255."""


def dataset(schema: str, table: str) -> str:
    """Return `schema.table`; characters with a meaning in a path, a Hive partition or a glob become %XX."""
    name = f"{_escaped(schema)}.{_escaped(table)}"
    if len(name.encode()) > _MOST_BYTES:
        digest = hashlib.sha256(f"{schema}\0{table}".encode()).hexdigest()[:16]
        name = f"{name.encode()[: _MOST_BYTES - 17].decode(errors='ignore')}~{digest}"
    return name


def changes(dataset: str, version: int = 1) -> str:
    """Return the folder of one schema version of a dataset; versions never share a folder."""
    base = MESSAGES if dataset == MESSAGES else f"changes/{dataset}"
    return base if version == 1 else f"{base}/schema={version}"


def change_file(dataset: str, version: int, date: str, first_seq: int, last_seq: int) -> str:
    """Return the path of a file of changes; names sort as seqs do."""
    return f"{FILES}/{changes(dataset, version)}/date={date}/{first_seq:020d}-{last_seq:020d}.parquet"


def merged_file(dataset: str, version: int, date: str, first_seq: int, last_seq: int, unique: str) -> str:
    """Return the path of a merged file. `unique`: differs for each attempt, so that no other attempt writes to it."""
    path = change_file(dataset, version, date, first_seq, last_seq)
    return path.replace(".parquet", f"-m{unique}.parquet")


def day(path: str) -> str | None:
    """Return the folder where readers by glob find a file; None if the file itself is there, from earlier versions."""
    inner = path.removeprefix(f"{FILES}/")
    return None if inner == path else inner.rpartition("/")[0]


def day_view(folder: str, number: int | str) -> str:
    """Return the path where a new content of `folder` is made. `number`: that of the compaction, or a seq.

    After the exchange, the old folder stays at that path for a while.
    """
    return f"{DAYS}/{number}/{folder}"


def schema_file(dataset: str, version: int) -> str:
    """Return the path of a Parquet file without rows, where Spark finds a dataset's columns; others skip `_…`."""
    return f"{changes(dataset, version)}/_common_metadata"


def manifest_part(dataset: str, number: int) -> str:
    """Return the path of a part of the manifest, which lists committed files of a dataset. A part never changes."""
    return MANIFEST_PART % (dataset, number)


def state_part(dataset: str, version: int) -> str:
    """Return the path of the manifest's part for one version of a table's state, in a bucket."""
    return STATE_PART % (dataset, version)


def export_staging(export_id: int) -> str:
    """Return the folder where an export writes before it publishes."""
    return f"{STAGING}/export-{export_id}"


def set_aside(jump: int) -> str:
    """Return the folder for files that the ledger did not list when the log had jumped to that seq."""
    return f"{SET_ASIDE}/{jump}"


def current(dataset: str) -> str:
    """Return the folder of a table's current state."""
    return f"{CURRENT}/{dataset}"


def latest(dataset: str) -> str:
    """Return the folder that has only the newest version of a table's current state."""
    return f"{current(dataset)}/{LATEST}"


def _escaped(name: str) -> str:
    return re.sub(r"[^\w\-]", lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), name)
