"""Accept that the log keeps rows of partitions that left a table, or lacks rows of partitions that joined."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.capture.source import missing_source, sources
from pipeline.config.settings import Config
from pipeline.errors import BackfillError, TableRefusedError
from pipeline.postgres.connections import Connection
from pipeline.snapshots import known_tables, partition_changes


@dataclass(frozen=True)
class PartitionSettlement:
    """The result of `settle --keep`. `changes`: how many were accepted; `always`: later changes are accepted, too."""

    table: str
    changes: int
    always: bool


def keep(config: Config, pipeline: Connection, name: str, *, always: bool | None = None) -> PartitionSettlement:
    """Accept the known partition changes of this table: `schema.table`, or a table of the schema public.

    `always`: also accept later changes as soon as they are found: partitions that leave, and partitions that join and
    are not read. None leaves that setting as it is. Raises TableRefusedError or BackfillError.
    """
    stored = sources.find(pipeline, config.source_id)
    if stored is None:
        raise BackfillError(missing_source.explain_missing_source(pipeline))
    wanted = name if "." in name else f"public.{name}"
    known = [each for each in known_tables.read(pipeline, stored).values() if each.captured and each.table == wanted]
    if not known:
        raise TableRefusedError(f"{name[:200]} is no captured table; name the table whose partitions came or went")
    settled = partition_changes.keep(pipeline, stored, known[0].table_oid, always=always)
    found = next((each.always for each in partition_changes.notes(pipeline, stored) if each.table == wanted), False)
    return PartitionSettlement(wanted, settled, found)
