"""The ledger of states: which versions of each table's state exist, in which files."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from lake.ledger import Ledger
from lake.states.fold import Folded
from lake.states.plan import BucketFile, Folding, StateVersion


class StateLedger:
    """The states of one lake. To write, use the session that holds the lake's lock; any session may read."""

    def __init__(self, ledger: Ledger, lake: uuid.UUID) -> None:
        self._ledger = ledger
        self._lake = str(lake)

    def committed(self, dataset: str | None = None) -> list[StateVersion]:
        """Versions that are whole and in place, of one dataset or of all, oldest first."""
        found = self._ledger.rows(
            "select id, dataset, seq, schema_version, columns::text, buckets, rows, files::text,"
            " source_epoch, source_table_oid from pipeline.export_states"
            " where lake_id = $1::text::uuid and state = 'committed' and ($2 = '' or dataset = $2) order by seq",
            (self._lake, dataset or ""),
        )
        return [_version(row) for row in found]

    def begin(self, folding: Folding) -> int:
        """Begin to write a version; returns its id."""
        found = self._ledger.rows(
            "insert into pipeline.export_states (lake_id, dataset, seq, schema_version, columns)"
            " values ($1::text::uuid, $2, $3, $4, $5::text::json) returning id",
            (self._lake, folding.dataset, folding.seq, folding.schema_version, json.dumps(dict(folding.columns))),
        )
        return int(found[0]["id"])

    def commit(self, version: int, folded: Folded, files: Sequence[BucketFile]) -> None:
        """Commit a version whose folder is in place. Raises Fenced."""
        self._ledger.step(
            "state",
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

    def fail(self, version: int, reason: str) -> None:
        """Give the version up."""
        self._ledger.execute(
            "update pipeline.export_states set state = 'failed', reason = $2 where id = $1 and state = 'writing'",
            (version, reason),
        )

    def fail_unfinished(self) -> None:
        """Fail the versions that are not committed: with the lake's lock held, no other process can be writing them."""
        self._ledger.execute(
            "update pipeline.export_states set state = 'failed', reason = 'its process ended before it was published'"
            " where lake_id = $1::text::uuid and state = 'writing'",
            (self._lake,),
        )

    def drop(self, version: int) -> None:
        """Mark the version dropped, before its folder is removed."""
        self._ledger.execute(
            "update pipeline.export_states set state = 'dropped', files = null where id = $1", (version,)
        )


def _version(row: dict[str, Any]) -> StateVersion:
    files = [BucketFile(**file) for file in json.loads(row["files"])]
    return StateVersion(**{**row, "columns": json.loads(row["columns"]), "files": files})
