"""The columns of a table are known in one room: SQL elsewhere names it only where a reason is told here.

Events tables are not in it: their names are a setting, and what is in them is for everybody to read.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
MADE = re.compile(r"^CREATE (?:TABLE|VIEW) ((?:pipeline|public)\.\w+)", re.MULTILINE)
NAMED = re.compile(r"\b(?:pipeline|public)\.\w+\b(?!\(|\.\w+\.\w)")  # what has more parts is a module
MODULE = re.compile(r"pipeline(?:\.\w+){2,}")
WRITTEN = re.compile(r"(?:insert into|update|delete from|lock(?: table)?|truncate)\s+(?:only\s+)?([a-z]+\.\w+)")
FREE = {"public.sequin_events", "pipeline.events"}
"""The log itself: a default of a setting, and the view that shows it by one name."""

REGISTRY = "the registry of readers is the one file that names what every kind of reader keeps"
REPORT = "a report reads places of several rooms in one statement, so that they are of one moment"
PROOF = "verify compares what rooms keep with each other, and does not ask the code that it checks"
VERSION = "a row is joined to its table version in the statement that moves or reads it"
FORK = "what parts have staged beyond a fork of the source is discarded with the timeline that they came from"
PART = "what a part has staged becomes the slot's own in one transaction"
SEQS = "what a snapshot does not contain comes after the seqs of before it"
GAP = "what was read is not missing any more"
YIELDS = "reading tables waits for the stream"
YIELDS_TO_LOG = "queues wait while the log lags"
GAPS = "a follower asks whether what was changed before an epoch is in the log"
JOINED = "a follower's tables are divided as looks at the source's catalog have found it"
LAKE = "which changes are of one table, and from where on all of its rows are known, is in the history of its source"
DIVIDED = "a lake has no current state of a table whose changes go to several events tables"
NEW_PARTITIONS = "partitions that are newer than clients are not read together with older ones"
FIRST_ROWS = "a client asks which rows are the first ones of a table that is newer than itself"
NO_HOLDS = "a consumer that was reset or dropped has no session, in one transaction"
JUMPS = "a lake asks whether the log may have lost what it has"
JOB = "the Spark job is a separate program that shares no code with the server"


class Owner(NamedTuple):
    """`room`: whose SQL may read and write the table. The others, path to reason, may read it, or write it too."""

    room: str
    readers: Mapping[str, str] = MappingProxyType({})
    writers: Mapping[str, str] = MappingProxyType({})


OWNERS = {
    "pipeline.advisory_locks": Owner(
        "pipeline",
        {"spark/lake": JOB, "spark/pyspark_sequin_events": JOB},
    ),
    "pipeline.backfills": Owner(
        "pipeline/snapshots",
        {
            "pipeline/capture/source": GAP,
            "pipeline/followers/operating": REPORT,
            "pipeline/followers/running": GAPS,
            "pipeline/log/functions/readers.sql": REGISTRY,
            "pipeline/wires/walstream": FIRST_ROWS,
            "spark/lake/states": LAKE,
        },
    ),
    "pipeline.snapshot_ranges": Owner(
        "pipeline/log/staging",
        {},
    ),
    "pipeline.snapshot_tables": Owner(
        "pipeline/snapshots",
        {
            "pipeline/capture/source": GAP,
            "pipeline/followers/running": GAPS,
            "pipeline/log/shuffling": "an update may leave out what only the epoch before its table was compared has",
        },
    ),
    "pipeline.partition_changes": Owner(
        "pipeline/snapshots",
        {
            "pipeline/followers/operating": REPORT,
            "pipeline/followers/running": JOINED,
            "pipeline/followers/schema_changes": JOINED,
        },
    ),
    "pipeline.inheritance": Owner(
        "pipeline/snapshots",
        {
            "pipeline/followers/running": "an applier hears of changes",
            "pipeline/followers/schema_changes": "a follower's tables inherit as the source's do",
        },
    ),
    "pipeline.partition_looks": Owner("pipeline/snapshots"),
    "pipeline.partitions": Owner(
        "pipeline/snapshots",
        {"pipeline/followers/schema_changes": JOINED},
    ),
    "pipeline.snapshots": Owner(
        "pipeline/snapshots",
        {"pipeline/demo": "the demo reads it as any reader does"},
    ),
    "pipeline.alembic_version": Owner("pipeline/postgres"),
    "pipeline.carried_transactions": Owner(
        "pipeline/capture/source",
        {"pipeline/capture/catchup": "a part asks whether it may leave a transaction out"},
    ),
    "pipeline.captured_tables": Owner("pipeline/capture/source"),
    "pipeline.catchup_parts": Owner("pipeline/capture/catchup", {"pipeline/capture/source": FORK}),
    "pipeline.consumer_progress": Owner(
        "pipeline/consumers",
        {
            "pipeline/log/functions/readers.sql": REGISTRY,
            "pipeline/log/staging": "who writes a batch at once wakes the shuffler only where a consumer has items",
        },
    ),
    "pipeline.consumer_touches": Owner(
        "pipeline/consumers",
        {"pipeline/log/functions/readers.sql": REGISTRY},
    ),
    "pipeline.consumers": Owner(
        "pipeline/consumers",
        {
            "pipeline/api": "a client reads events by the name of a consumer",
            "pipeline/log/functions/readers.sql": REGISTRY,
            "pipeline/wires/sequin": "a client names a consumer by an id that is made of its name",
            "pipeline/wires/walstream": "a consumer is made only where there is none",
        },
        {"spark/pyspark_sequin_events": JOB},
    ),
    "pipeline.dead_letters": Owner(
        "pipeline/log",
        {"pipeline/operate/verify": PROOF},
    ),
    "pipeline.epochs": Owner(
        "pipeline/capture/source",
        {"pipeline/followers/running": GAPS, "pipeline/operate": REPORT, "spark/lake/tables": LAKE},
    ),
    "pipeline.events_tables": Owner(
        "pipeline/log",
        {
            "pipeline/consumers/queue": "a queue asks how far the log has come",
            "pipeline/operate/verify": PROOF,
            "pipeline/snapshots": SEQS,
            "spark/lake/states": DIVIDED,
        },
    ),
    "pipeline.export_requests": Owner("pipeline/exports"),
    "pipeline.export_runs": Owner(
        "pipeline/exports",
        {"spark": JOB},
    ),
    "pipeline.export_datasets": Owner("spark/lake"),
    "pipeline.export_files": Owner(
        "spark/lake",
        {"pipeline/exports": JOB},
    ),
    "pipeline.export_iceberg": Owner(
        "spark/lake",
        {"pipeline/exports": JOB},
    ),
    "pipeline.export_iceberg_commits": Owner("spark/lake"),
    "pipeline.export_iceberg_tables": Owner("spark/lake"),
    "pipeline.export_iceberg_written": Owner("spark/lake"),
    "pipeline.export_compactions": Owner("spark/lake"),
    "pipeline.export_written": Owner("spark/lake"),
    "pipeline.export_replaced": Owner("spark/lake"),
    "pipeline.export_schemas": Owner(
        "spark/lake",
        {"pipeline/exports": JOB},
    ),
    "pipeline.export_states": Owner(
        "spark/lake",
        {"pipeline/exports": JOB},
    ),
    "pipeline.export_tables": Owner(
        "spark/lake",
        {"pipeline/exports": JOB},
    ),
    "pipeline.exports": Owner(
        "spark/lake",
        {"pipeline/exports": JOB, "pipeline/log/functions/readers.sql": REGISTRY},
    ),
    "pipeline.follower_tables": Owner("pipeline/followers"),
    "pipeline.followers": Owner(
        "pipeline/followers",
        {"pipeline/log/functions/readers.sql": REGISTRY},
    ),
    "pipeline.iceberg_namespace_properties": Owner("spark/lake"),
    "pipeline.iceberg_tables": Owner("spark/lake"),
    "pipeline.identity": Owner(
        "pipeline/log",
        {
            "pipeline/capture/source": "a slot's mark is its id",
            "spark/lake": "a manifest says whose lake it is",
        },
    ),
    "pipeline.installed_functions": Owner("pipeline/postgres"),
    "pipeline.known_rows": Owner(
        "pipeline/log/retention",
        {"pipeline/log/shuffling": "an update takes what it left out from what retention has kept"},
    ),
    "pipeline.lag_samples": Owner("pipeline/operate"),
    "pipeline.lakes": Owner(
        "spark/lake",
        {"pipeline/exports": JOB, "pipeline/log/functions/readers.sql": REGISTRY},
        {"pipeline/operate": "a lake is released by a command, also where there is no Spark"},
    ),
    "pipeline.published_forms": Owner("pipeline/capture/schema_history"),
    "pipeline.reached_workers": Owner(
        "pipeline/log/staging",
        {
            "pipeline/log/writing": "the shuffler moves no further than what is staged without a gap",
            "pipeline/snapshots": "a worker asks up to where nothing is missing before it lets go of anything",
            "pipeline/capture": "a worker asks up to where nothing is missing before it lets go of anything",
            "pipeline/operate": REPORT,
            "pipeline/consumers/queue": YIELDS_TO_LOG,
        },
    ),
    "pipeline.readers": Owner(
        "pipeline/log",
        {"spark/pyspark_sequin_events": JOB},
    ),
    "pipeline.receivable": Owner("pipeline/consumers"),
    "pipeline.relations": Owner(
        "pipeline/capture/schema_history",
        {
            "pipeline/consumers/queue": VERSION,
            "pipeline/exports": VERSION,
            "pipeline/operate/verify": PROOF,
            "pipeline/snapshots": "a truncate of a partition is an event of the partition",
            "pipeline/wires/sequin": VERSION,
            "spark/pyspark_sequin_events": JOB,
            "pipeline/followers": VERSION,
            "pipeline/log": VERSION,
            "spark/lake": JOB,
        },
    ),
    "pipeline.replication_progress": Owner(
        "pipeline/log",
        {
            "pipeline/operate": REPORT,
        },
        {"pipeline/capture/catchup": PART, "pipeline/capture/source": FORK},
    ),
    "pipeline.retention": Owner(
        "pipeline/log",
        {
            "pipeline/client": "a client asks whether it may see what is gone",
            "spark/pyspark_sequin_events": JOB,
        },
    ),
    "pipeline.rewrites": Owner(
        "pipeline/capture/schema_history",
        {"pipeline/followers": "a follower's table is copied again when it was rewritten"},
    ),
    "pipeline.roles": Owner(
        "pipeline/postgres",
        {"pipeline/operate/lag": REPORT},
    ),
    "pipeline.verifications": Owner("pipeline/operate"),
    "pipeline.routes": Owner(
        "pipeline/log",
        {"pipeline/consumers": REPORT, "pipeline/operate": REPORT, "spark/lake/states": DIVIDED},
    ),
    "pipeline.ways": Owner(
        "pipeline/log",
        {"pipeline/operate": REPORT},
    ),
    "pipeline.adoptions": Owner(
        "pipeline/log",
        {"pipeline/operate": REPORT},
    ),
    "pipeline.adopted_tables": Owner(
        "pipeline/log",
        {
            "pipeline/capture/source": FORK,
            "pipeline/operate": REPORT,
            "pipeline/operate/verify": PROOF,
            "pipeline/snapshots": YIELDS,
        },
    ),
    "pipeline.adopting_sources": Owner("pipeline/log"),
    "pipeline.segments": Owner(
        "pipeline/log",
        {"pipeline/snapshots": YIELDS},
        {"pipeline/capture/catchup": PART, "pipeline/capture/source": FORK},
    ),
    "pipeline.seq_jumps": Owner(
        "pipeline/log",
        {"pipeline/exports": JUMPS, "spark/lake": JUMPS},
    ),
    "pipeline.sessions": Owner("pipeline/wires/pgdeltastream/sessions"),
    "pipeline.shuffle_progress": Owner(
        "pipeline/log",
        {
            "pipeline/capture/source": FORK,
            "pipeline/consumers/queue": "a queue asks how far the log has come",
            "pipeline/snapshots": YIELDS,
            "pipeline/operate": REPORT,
        },
    ),
    "pipeline.source_stops": Owner(
        "pipeline/capture/source",
        {
            "pipeline/log/shuffling": "values of before a transaction that was skipped are not known to be the newest",
        },
        {
            "pipeline/capture/replication": "a skip is noted in the transaction that stages the event which says so",
        },
    ),
    "pipeline.sources": Owner(
        "pipeline/capture/source",
        {
            "pipeline/capture/replication": "a sample is stored only under the epoch that holds",
            "pipeline/operate": REPORT,
            "pipeline/wires/sequin": "a message names the database that its change comes from",
            "spark/lake/tables": LAKE,
            "pipeline/followers": "a copy is of an epoch, and has what is published",
        },
    ),
    "pipeline.seen_tables": Owner(
        "pipeline/capture/source",
        {"pipeline/snapshots": NEW_PARTITIONS, "pipeline/wires/walstream": FIRST_ROWS},
    ),
    "pipeline.walstream_sessions": Owner(
        "pipeline/wires/walstream",
        {},
        {"pipeline/consumers/queue": NO_HOLDS},
    ),
    "pipeline.wire_counters": Owner("pipeline/wires/walstream"),
    "pipeline.wal_written": Owner(
        "pipeline/capture/replication",
        {"pipeline/consumers/queue": YIELDS_TO_LOG, "pipeline/operate": REPORT, "pipeline/operate/lag": REPORT},
    ),
    "pipeline.worker_load": Owner(
        "pipeline/capture/replication",
        {"pipeline/operate": REPORT},
    ),
    "public.consumer_records": Owner(
        "pipeline/consumers",
        {
            "pipeline/capture/source": "the pipeline's tables in the source's database are not published",
            "pipeline/log/functions/readers.sql": REGISTRY,
            "pipeline/operate/repair/reader_role.py": "a role that may only read is granted what it needs, by name",
            "pipeline/wires/sequin": "an item that waits or failed keeps its event",
        },
    ),
    "public.wal_events": Owner(
        "pipeline/log/staging",
        {
            "pipeline/capture/source": "the pipeline's tables in the source's database are not published",
            "pipeline/log/shuffling": "an error names the staged table that it comes from",
            "pipeline/operate": REPORT,
        },
    ),
}


def statements(path: Path) -> Iterator[str]:
    """SQL without comments: of a `.py` file, its texts that are no docstrings. Nothing of one that names no table."""
    source = path.read_text()
    if not any(table in source for table in OWNERS):
        return
    if path.suffix == ".sql":
        yield re.sub(r"--.*", "", source)
        return
    for node in ast.walk(ast.parse(source)):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Constant) and isinstance(child.value, str) and not isinstance(node, ast.Expr):
                yield from () if MODULE.fullmatch(child.value) else (child.value,)


def uses() -> Iterator[tuple[str, str, bool]]:
    """Path, table, and whether it is written there."""
    for top in ("pipeline", "spark"):
        for path in sorted((*ROOT.glob(f"{top}/**/*.sql"), *ROOT.glob(f"{top}/**/*.py"))):
            for text in statements(path):
                written = set(WRITTEN.findall(text.lower()))
                for table in set(NAMED.findall(text)) & OWNERS.keys():
                    yield str(path.relative_to(ROOT)), table, table in written


def test_every_table_has_an_owner():
    made = set(MADE.findall((ROOT / "docs" / "schema.sql").read_text()))
    assert made - FREE == OWNERS.keys()


def test_tables_are_named_only_in_the_sql_of_their_owners():
    """In one test, since all programs are read for it. Nor is there a reason for what does not occur."""
    found = sorted(set(uses()))
    wrong, idle = [], []
    for table, owner in OWNERS.items():
        may_write = (owner.room, *owner.writers)
        may_read = (*may_write, *owner.readers)
        of_it = [(path, writes) for path, named, writes in found if named == table]
        wrong += [(table, path) for path, writes in of_it if not path.startswith(may_write if writes else may_read)]
        others = [path for path, _ in of_it if not path.startswith(owner.room)]
        told = (*owner.readers, *owner.writers)
        idle += [(table, room) for room in told if not any(path.startswith(room) for path in others)]
    assert (wrong, idle) == ([], [])
