"""Handles state versions in a bucket: their files stay where tasks have put them, and the manifest lists them.

    current/<schema>.<table>/v00000000000000000123/<unique>.parquet
    manifest/current/<schema>.<table>/<version>.json

A bucket of rows that did not change is the same object in the next version. A version has no separate folder: an object
is removed when no version lists it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from lake.states.fold_tasks import FoldResult
from lake.states.folders import version_name
from lake.states.plan import STATE, BucketFile, PlannedFold
from lake.storage import layout
from lake.storage.identity import Lake
from lake.storage.new_file import FileTarget
from lake.storage.where import ObjectPath, relative
from lake.storage.written_objects import ObjectOwner

_DROP = """
    with version as (
        select id, lake_id, table_id, dataset, superseded_at, files from pipeline.export_states
        where id = $1 and state = 'committed' and files is not null
    ),
    kept as (
        select f ->> 'name' as name from pipeline.export_states s, version v, jsonb_array_elements(s.files) f
        where s.table_id = v.table_id and s.id <> v.id and s.state = 'committed'
    ),
    gone as (
        insert into pipeline.export_replaced (lake_id, path, replaced_at)
        select v.lake_id, format($2, f ->> 'name'), coalesce(v.superseded_at, now())
        from version v, jsonb_array_elements(v.files) f
        where not exists (select from kept k where k.name = f ->> 'name')
        union all
        select v.lake_id, format($3, v.dataset, v.id), coalesce(v.superseded_at, now()) from version v
    )
    update pipeline.export_states set state = 'dropped', files = null where id = $1
"""


def target(lake: Lake, version: int, folding: PlannedFold) -> FileTarget:
    """Return the target where tasks put the files of a version."""
    made = lake.target("", state=version)
    return made / f"{layout.current(folding.dataset)}/{version_name(folding.seq)}"


def files(lake: Lake, folded: FoldResult) -> list[BucketFile]:
    """Return all files of a version, named by their paths in `current`."""
    folder = lake.root / layout.CURRENT
    made = [
        BucketFile(relative(each.path, folder), each.bucket, each.rows, each.bytes, each.sha256)
        for each in folded.written
    ]
    return [*made, *folded.kept]


def write_part(lake: Lake, version: int, folding: PlannedFold, listed: Sequence[BucketFile]) -> None:
    """Write the manifest's part for a version, before the version is committed."""
    part = layout.state_part(folding.dataset, version)
    content = {
        "dataset": folding.dataset,
        "seq": folding.seq,
        "rows": sum(file.rows for file in listed),
        "columns": {**STATE, **folding.schema},
        "key": list(folding.form.form.key),
        "files": [
            {"path": f"{layout.CURRENT}/{file.name}", "rows": file.rows, "bytes": file.bytes, "sha256": file.sha256}
            for file in listed
        ],
    }
    assert isinstance(lake.root, ObjectPath)  # noqa: S101  the caller has checked
    ObjectOwner(lake.ledger.dsn, str(lake.id), lake.root, state=version).record_on(lake.ledger, lake.root / part)
    lake.folder.write_all({part: json.dumps(content, ensure_ascii=False).encode()})


def drop(lake: Lake, version: int) -> None:
    """Mark a version dropped. Files that only it lists count as replaced since the version was superseded."""
    lake.ledger.execute(_DROP, (version, f"{layout.CURRENT}/%s", layout.STATE_PART))
