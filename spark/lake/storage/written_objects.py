"""Records objects in the ledger before tasks write them: the lake lists no objects, so this finds unneeded ones.

An object of a task belongs to an export or to a state version. Once these are committed, they list their files; all
other objects are removed as replaced files are. They stay as long as replaced files, since a task that was given up may
still be uploading.
"""

from __future__ import annotations

from dataclasses import dataclass

from lake.ledger import LakeLedger
from lake.storage.where import ObjectPath
from pyspark_sequin_events import catalog

_RECORD = """
    insert into pipeline.export_written (lake_id, path, export_id, state_id)
    values ($1::text::uuid, $2, nullif($3::bigint, 0), nullif($4::bigint, 0)) on conflict do nothing
"""
_SETTLE = """
    with settled as (
        delete from pipeline.export_written where lake_id = $1::text::uuid returning *
    )
    insert into pipeline.export_replaced (lake_id, path)
    select w.lake_id, w.path from settled w
    where not exists (
        select from pipeline.export_files f where f.export_id = w.export_id and f.path = w.path
    ) and not exists (
        select from pipeline.export_states s where s.id = w.state_id and s.state = 'committed' and (
            w.path like 'manifest/%' or exists (
                select from jsonb_array_elements(s.files) f where 'current/' || (f ->> 'name') = w.path
            )
        )
    )
"""


@dataclass(frozen=True)
class ObjectOwner:
    """An export or a state version of the lake in `root` that owns objects. Tasks get it, so `dsn` has no password."""

    dsn: str
    lake: str
    root: ObjectPath
    export: int = 0
    state: int = 0

    def record(self, at: ObjectPath) -> None:
        """Record an object before it is written. Raises adbc_driver_manager.Error."""
        with catalog.connect(self.dsn) as connection:
            catalog.execute(connection, _RECORD, self._row(at))

    def record_on(self, ledger: LakeLedger, at: ObjectPath) -> None:
        """Record an object before it is written, on the driver's session."""
        ledger.execute(_RECORD, self._row(at))

    def _row(self, at: ObjectPath) -> tuple[str, str, int, int]:
        return self.lake, at.relative_to(self.root), self.export, self.state


def settle_written(ledger: LakeLedger, lake: str) -> None:
    """Record objects that became no file of an export or a state as replaced.

    The lake's lock must be held, and no export or state may be unfinished.
    """
    ledger.execute(_SETTLE, (lake,))
