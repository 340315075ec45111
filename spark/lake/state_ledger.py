"""The part of the ledger that is about states: which versions of each table's state there are, in which files."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from adbc_driver_postgresql import dbapi

from lake.errors import Fenced
from lake.fold import Folded
from lake.state_plan import BucketFile, Folding, StateVersion
from pyspark_sequin_events import catalog


class StateLedger:
    """Of one lake, on the session that holds its lock, or on another one for reading."""

    def __init__(self, connection: dbapi.Connection, lake: uuid.UUID) -> None:
        self._connection = connection
        self._lake = str(lake)

    def committed(self, dataset: str | None = None) -> list[StateVersion]:
        """Versions that are whole and in place, of one dataset or of all, oldest first."""
        found = catalog.rows(
            self._connection,
            "select id, dataset, seq, schema_version, columns::text, buckets, rows, files::text,"
            " source_epoch, source_table_oid from pipeline.export_states"
            " where lake_id = $1::text::uuid and state = 'committed' and ($2 = '' or dataset = $2) order by seq",
            (self._lake, dataset or ""),
        )
        return [_version(row) for row in found]

    def begin(self, folding: Folding) -> int:
        """A version that is being written; returns its id."""
        found = catalog.rows(
            self._connection,
            "insert into pipeline.export_states (lake_id, dataset, seq, schema_version, columns)"
            " values ($1::text::uuid, $2, $3, $4, $5::text::json) returning id",
            (self._lake, folding.dataset, folding.seq, folding.schema_version, json.dumps(dict(folding.columns))),
        )
        return int(found[0]["id"])

    def commit(self, version: int, folded: Folded, files: Sequence[BucketFile]) -> None:
        """Its folder is in place. Raises Fenced."""
        found = catalog.rows(
            self._connection,
            "update pipeline.export_states set state = 'committed', committed_at = now(), buckets = $2, rows = $3,"
            " bytes = $4, files = $5::text::jsonb, source_epoch = $6, source_table_oid = $7"
            " where id = $1 and state = 'writing' returning id",
            (
                version,
                folded.buckets,
                sum(file.rows for file in files),
                sum(file.bytes for file in files),
                json.dumps([asdict(file) for file in files]),
                folded.source_epoch,
                folded.source_table_oid,
            ),
        )
        if not found:
            raise Fenced(f"state {version} was taken over by another exporter; this one publishes nothing")

    def fail(self, version: int, reason: str) -> None:
        """The version is given up."""
        self._do(
            "update pipeline.export_states set state = 'failed', reason = $2 where id = $1 and state = 'writing'",
            (version, reason),
        )

    def fail_unfinished(self) -> None:
        """Nobody else can be writing: those that are not committed never will be."""
        self._do(
            "update pipeline.export_states set state = 'failed', reason = 'its process ended before it was published'"
            " where lake_id = $1::text::uuid and state = 'writing'",
            (self._lake,),
        )

    def drop(self, version: int) -> None:
        """The version's folder goes."""
        self._do("update pipeline.export_states set state = 'dropped', files = null where id = $1", (version,))

    def _do(self, statement: str, parameters: tuple[Any, ...]) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(statement, parameters)


def _version(row: dict[str, Any]) -> StateVersion:
    files = [BucketFile(**file) for file in json.loads(row["files"])]
    return StateVersion(**{**row, "columns": json.loads(row["columns"]), "files": files})
