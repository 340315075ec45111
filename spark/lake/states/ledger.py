"""The ledger of states: it lists the tables with a state, their names, and the versions of states with their files."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lake.ledger import LakeLedger
from lake.states.fold_tasks import FoldResult
from lake.states.plan import BucketFile, PlannedFold, StateVersion
from lake.tables.forms import LakeTableForm

TableRoot = tuple[str, int, int]
"""Source, epoch and oid of a table's first form."""


@dataclass(frozen=True)
class StateTable:
    """A table of the ledger. `dataset`: the name under which readers find it; None: they do not find it.

    `shows`: the seq of the version that `latest` is known to have; None: `latest` must be set.
    """

    id: int
    root: TableRoot
    dataset: str | None
    shows: int | None


@dataclass(frozen=True)
class SupersededVersion:
    """A version that a newer version has replaced."""

    id: int
    dataset: str
    seq: int


@dataclass(frozen=True)
class RefusedState:
    """A table of which no state is made: its name, the seq, its form, and the reason."""

    dataset: str
    seq: int
    form: LakeTableForm
    reason: str


_VERSIONS = """
    select id, dataset, seq, form_id, columns::text, buckets, rows, files::text from pipeline.export_states
    where state = 'committed' and table_id = $1 order by seq
"""
_COMMIT = """
    with version as (
        update pipeline.export_states set state = 'committed', committed_at = now(), buckets = $2, rows = $3,
            bytes = $4, files = $5::text::jsonb
        where id = $1 and state = 'writing' returning id, lake_id, table_id, dataset, seq
    ),
    superseded as (
        update pipeline.export_states s set superseded_at = now() from version v
        where s.lake_id = v.lake_id and s.state = 'committed' and s.superseded_at is null and s.id <> v.id
            and (s.table_id = v.table_id or s.dataset = v.dataset and s.table_id is null)
    ),
    moved as (
        insert into pipeline.export_replaced (lake_id, path, replaced_at)
        select v.lake_id, format('current/%s/latest', t.dataset), '-infinity' from version v
        join pipeline.export_tables t on t.id = v.table_id and t.dataset <> v.dataset
    ),
    displaced as (
        update pipeline.export_tables t set dataset = null, shows = null, waits_since = null from version v
        where t.lake_id = v.lake_id and t.dataset = v.dataset and t.id <> v.table_id
    ),
    named as (
        update pipeline.export_tables t set dataset = v.dataset, shows = null, waits_since = null from version v
        where t.id = v.table_id
    )
    select id from version
"""
_SUPERSEDED = """
    select s.id, s.dataset, s.seq from pipeline.export_states s
    where s.lake_id = $1::text::uuid and s.superseded_at <= now() - make_interval(secs => $2)
        and (
            s.state = 'dropped' or s.table_id is null or s.superseded_at <= now() - make_interval(secs => $3)
            or exists (
                select from pipeline.export_states n
                where n.table_id = s.table_id and n.seq > s.seq and n.state = 'committed'
                    and (n.committed_at at time zone 'UTC')::date = (s.committed_at at time zone 'UTC')::date
            )
        )
        and (s.table_id is null or not exists (
            select from pipeline.export_iceberg i where i.lake_id = s.lake_id and not exists (
                select from pipeline.export_states n where n.table_id = s.table_id and n.state = 'committed'
                    and n.seq > s.seq and n.seq <= i.kept_seq
            )
        ))
    order by s.superseded_at
"""


_REFUSE = """
    insert into pipeline.export_states (lake_id, table_id, dataset, seq, schema_version, form_id, columns,
        source_epoch, source_table_oid, state, reason)
    select $1::text::uuid, $2, $3, $4, 0, $5, '{}', $6, $7, 'failed', $8
    where not exists (
        select from (
            select s.dataset, s.state, s.reason from pipeline.export_states s
            where s.table_id = $2 order by s.id desc limit 1
        ) newest
        where (newest.dataset, newest.state, newest.reason) = ($3, 'failed', $8)
    )
"""
_OIDS = """
    select t.dataset is not null as shown, t.table_oid, (
        select s.source_table_oid from pipeline.export_states s where s.table_id = t.id order by s.id desc limit 1
    ) as newest_oid
    from pipeline.export_tables t where t.lake_id = $1::text::uuid
"""


class StateLedger:
    """The states of one lake. To write, use the session that holds the lake's lock; any session may read."""

    def __init__(self, ledger: LakeLedger, lake: uuid.UUID) -> None:
        self._ledger = ledger
        self._lake = str(lake)

    def table(self, root: TableRoot) -> StateTable | None:
        """Return the table, if it has or had a state."""
        found = self._tables("and source_id = $2::text::uuid and source_epoch = $3 and table_oid = $4", root)
        return found[0] if found else None

    def add_table(self, root: TableRoot) -> StateTable:
        """Return the table, and add it if the ledger does not know it yet."""
        self._ledger.execute(
            "insert into pipeline.export_tables (lake_id, source_id, source_epoch, table_oid)"
            " values ($1::text::uuid, $2::text::uuid, $3, $4) on conflict do nothing",
            (self._lake, *root),
        )
        table = self.table(root)
        assert table is not None, root  # noqa: S101  just added
        return table

    def tables_to_show(self) -> list[StateTable]:
        """Return tables with a name whose `latest` is not known to be set."""
        return self._tables("and dataset is not null and shows is null", ())

    def record_shown(self, table: int, seq: int) -> None:
        """Store that `latest` has that version now."""
        self._ledger.execute("update pipeline.export_tables set shows = $2 where id = $1", (table, seq))

    def hide(self, table: int) -> None:
        """Hide a table: readers find it under no name, once its `latest` is removed."""
        self._ledger.execute(
            "with moved as (insert into pipeline.export_replaced (lake_id, path, replaced_at)"
            " select lake_id, format('current/%s/latest', dataset), '-infinity' from pipeline.export_tables"
            " where id = $1 and dataset is not null)"
            " update pipeline.export_tables set dataset = null, shows = null, waits_since = null where id = $1",
            (table,),
        )

    def refuse(self, table: int, refused: RefusedState) -> None:
        """Hide a table of which no state is made. The reason is stored once, and shown until there is a state again."""
        form = refused.form
        self._ledger.execute(
            _REFUSE,
            (
                *(self._lake, table, refused.dataset, refused.seq),
                *(form.id, form.place.epoch, form.table_oid, refused.reason),
            ),
        )
        self.hide(table)

    def oids(self) -> dict[int, bool]:
        """Return the first and the newest oids of all tables that have or had a state, or were refused one.

        The value of each oid is True if the table is shown.
        """
        rows = self._ledger.rows(_OIDS, (self._lake,))
        return {oid: row["shown"] for row in rows for oid in (row["table_oid"], row["newest_oid"]) if oid is not None}

    def versions(self, table: int) -> list[StateVersion]:
        """Return complete versions of a table that are in place, oldest first."""
        return [_version(row) for row in self._ledger.rows(_VERSIONS, (table,))]

    def begin(self, table: int, folding: PlannedFold) -> int:
        """Begin to write a version, and return its id."""
        found = self._ledger.rows(
            "insert into pipeline.export_states (lake_id, table_id, dataset, seq, schema_version, form_id, columns,"
            " source_epoch, source_table_oid)"
            " values ($1::text::uuid, $2, $3, $4, 0, $5, $6::text::json, $7, $8) returning id",
            (
                self._lake,
                table,
                folding.dataset,
                folding.seq,
                folding.form.form.id,
                json.dumps(folding.schema),
                folding.form.place.epoch,
                folding.form.form.table_oid,
            ),
        )
        return int(found[0]["id"])

    def commit(self, version: int, folded: FoldResult, files: Sequence[BucketFile]) -> None:
        """Commit a version whose folder is in place: from now on its table alone has that name.

        Raises ExporterFencedError.
        """
        self._ledger.step(
            "state",
            _COMMIT,
            (
                version,
                folded.buckets,
                sum(file.rows for file in files),
                sum(file.bytes for file in files),
                json.dumps([asdict(file) for file in files]),
            ),
        )

    def fail(self, version: int, reason: str) -> None:
        """Mark a version failed."""
        self._ledger.execute(
            "update pipeline.export_states set state = 'failed', reason = $2 where id = $1 and state = 'writing'",
            (version, reason),
        )

    def unfinished(self) -> list[str]:
        """Return datasets of versions that are being written. With the lake's lock held, no process is writing them."""
        found = self._ledger.rows(
            "select distinct dataset from pipeline.export_states where lake_id = $1::text::uuid and state = 'writing'",
            (self._lake,),
        )
        return [row["dataset"] for row in found]

    def fail_unfinished(self) -> None:
        """Mark versions failed that a process was writing when it ended."""
        self._ledger.execute(
            "update pipeline.export_states set state = 'failed', reason = 'its process ended before it was published'"
            " where lake_id = $1::text::uuid and state = 'writing'",
            (self._lake,),
        )

    def superseded(self, seconds: float, checkpoints: float = 0.0) -> list[SupersededVersion]:
        """Return versions that were replaced at least `seconds` ago, and that no kept commit of Iceberg tables uses.

        The last version of a table on a day (UTC) is excluded, if it was replaced in the last `checkpoints` seconds.
        """
        found = self._ledger.rows(_SUPERSEDED, (self._lake, seconds, checkpoints))
        return [SupersededVersion(**row) for row in found]

    def drop(self, version: int) -> None:
        """Mark the version dropped, before its folder is removed."""
        self._ledger.execute(
            "update pipeline.export_states set state = 'dropped', files = null where id = $1", (version,)
        )

    def forget(self, version: int) -> None:
        """Delete a dropped version whose folder is removed."""
        self._ledger.execute("delete from pipeline.export_states where id = $1 and state = 'dropped'", (version,))

    def seqs(self, dataset: str) -> list[int]:
        """Return the seqs of committed versions in a dataset's folder."""
        found = self._ledger.rows(
            "select seq from pipeline.export_states where lake_id = $1::text::uuid and dataset = $2"
            " and state = 'committed' order by seq",
            (self._lake, dataset),
        )
        return [row["seq"] for row in found]

    def _tables(self, condition: str, parameters: tuple[Any, ...]) -> list[StateTable]:
        found = self._ledger.rows(
            "select id, source_id::text, source_epoch, table_oid, dataset, shows from pipeline.export_tables"
            f" where lake_id = $1::text::uuid {condition} order by id",
            (self._lake, *parameters),
        )
        return [
            StateTable(
                row["id"], (row["source_id"], row["source_epoch"], row["table_oid"]), row["dataset"], row["shows"]
            )
            for row in found
        ]


def _version(row: dict[str, Any]) -> StateVersion:
    files = [BucketFile(**file) for file in json.loads(row["files"])]
    return StateVersion(**{**row, "columns": json.loads(row["columns"]), "files": files})
