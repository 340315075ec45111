"""The manifest lists all committed files, for readers that do not use the ledger. It follows the ledger.

`manifest.json`, the head, is small. For each dataset, it names the newest part, a file that never changes. That part
lists the newest files, and the full parts before it. A run writes only new entries, however much the lake holds.
For each current state, the head names the newest version, its folder, and the seq up to which the version is complete.
For a table without a state, the head has the reason.

A compaction replaces files of full parts. The newest part then lists the other files of these parts again. Its name is
the number of the compaction (-7.json), since nothing else has changed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from lake.errors import UnfitTargetError, missing_jump_error
from lake.states.folders import StateFolders
from lake.storage import layout
from lake.storage.identity import Lake
from lake.storage.where import ObjectPath
from pyspark_sequin_events.query import qualified

FULL = 100
"""A part is full when it has this many files: then the next part names it, and begins empty."""
_TOUCHED = """
    select distinct f.dataset from pipeline.exports e join pipeline.export_files f on f.export_id = e.id
    where e.lake_id = $1::text::uuid and e.state = 'committed' and e.upto_seq > $2
"""
_MERGED = """
    select coalesce(max(c.id), 0) as number from pipeline.export_compactions c
    where c.lake_id = $1::text::uuid and c.state in ('switched', 'done')
"""
_MERGED_DATASETS = """
    select distinct r.dataset from pipeline.export_compactions c
    cross join json_to_recordset(c.replaced) r (dataset text)
    where c.lake_id = $1::text::uuid and c.state = 'switched'
"""
_OPEN = """
    select f.dataset, f.path, s.version as schema, f.rows, f.bytes, f.sha256, f.first_seq, f.last_seq, f.source_epoch,
        f.table_oid
    from pipeline.export_files f join pipeline.export_schemas s on s.id = f.schema_id
    where f.lake_id = $1::text::uuid and f.part is null
        and f.dataset = any(array(select json_array_elements_text($2::text::json)))
        and exists (select from pipeline.exports e where e.id = f.export_id and e.state = 'committed')
    order by f.first_seq, f.id
"""
_SCHEMAS = """
    select distinct on (dataset, version) dataset, version, columns::text, key::text from pipeline.export_schemas
    where lake_id = $1::text::uuid and dataset = any(array(select json_array_elements_text($2::text::json)))
    order by dataset, version, id desc
"""
_PARTS = """
    select dataset, part, array_to_json(sealed)::text as sealed from pipeline.export_datasets
    where lake_id = $1::text::uuid order by dataset
"""
_STATES = """
    select s.dataset, s.seq, s.id,
        case when t.waits_since is null then greatest(s.seq, l.folded_upto) else s.seq end as as_of
    from pipeline.export_tables t
    join pipeline.lakes l on l.id = t.lake_id
    cross join lateral (
        select s.id, s.dataset, s.seq from pipeline.export_states s
        where s.table_id = t.id and s.state = 'committed' order by s.seq desc limit 1
    ) s
    where t.lake_id = $1::text::uuid and t.dataset is not null order by s.dataset
"""
_HIDDEN = """
    select s.dataset, s.reason from pipeline.export_tables t
    cross join lateral (
        select s.dataset, s.state, s.reason from pipeline.export_states s
        where s.table_id = t.id order by s.id desc limit 1
    ) s
    where t.lake_id = $1::text::uuid and t.dataset is null and s.state = 'failed' and not exists (
        select from pipeline.export_tables other where other.lake_id = t.lake_id and other.dataset = s.dataset
    )
    order by s.dataset
"""
_SEAL = """
    with listed as (
        select f.id, f.dataset, d.part, count(*) over (partition by f.dataset) as files
        from pipeline.export_datasets d
        join pipeline.export_files f on f.lake_id = d.lake_id and f.dataset = d.dataset and f.part is null
        join pipeline.exports e on e.id = f.export_id and e.state = 'committed'
            and e.upto_seq <= coalesce(d.upto_seq, d.part)
        where d.lake_id = $1::text::uuid and d.part <> $4
            and d.dataset = any(array(select json_array_elements_text($2::text::json)))
    ),
    kept as (
        update pipeline.export_files f set part = l.part from listed l where l.files >= $3 and f.id = l.id
        returning l.dataset, l.part
    )
    update pipeline.export_datasets d set sealed = d.sealed || k.part from (select distinct * from kept) k
    where d.lake_id = $1::text::uuid and d.dataset = k.dataset
"""
_STORE = """
    with given as (
        select json_array_elements_text($2::text::json) as dataset
    ),
    replaced as (
        select d.dataset, d.part from pipeline.export_datasets d join given using (dataset)
        where d.lake_id = $1::text::uuid and d.part <> $3 and d.part <> all(d.sealed)
    ),
    stored as (
        insert into pipeline.export_datasets as d (lake_id, dataset, part, upto_seq)
        select $1::text::uuid, dataset, $3, $5 from given
        on conflict (lake_id, dataset) do update set part = excluded.part, upto_seq = excluded.upto_seq
    )
    insert into pipeline.export_replaced (lake_id, path)
    select $1::text::uuid, format($4, dataset, part) from replaced
"""
_RELIST = (
    "update pipeline.export_files set part = null where lake_id = $1::text::uuid and part is not null",
    "delete from pipeline.export_datasets where lake_id = $1::text::uuid",
)

_LOG_PLACE = """
    select e.source_epoch, e.commit_lsn, (extract(epoch from e.committed_at) * 1000000)::bigint as committed_at
    from {events} e where e.seq = (select max(l.seq) from {events} l where l.seq <= $1)
"""


class LakeManifest:
    """The manifest of a lake whose lock is held."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._id = str(lake.id)

    def require_same_log(self) -> int | None:
        """Raise UnfitTargetError if the manifest lists events that the log lacks, unless the log has jumped.

        If the manifest does not know the log's newest jump, return the first seq after that jump: the caller must bring
        the lake to the state of the ledger with `lake.lost.setting_aside`.
        """
        return require_same_log(self._lake, self.head())

    def update(self) -> None:
        """Bring the manifest to the state that the ledger has committed."""
        ledger = self._lake.ledger
        upto, merged = ledger.exported_upto(self._lake.id), int(ledger.rows(_MERGED, (self._id,))[0]["number"])
        head = self.head()
        listed = int(head.get("exported_upto", 0))
        changed = [row["dataset"] for row in ledger.rows(_TOUCHED, (self._id, listed))] if listed != upto else []
        again = [row["dataset"] for row in ledger.rows(_MERGED_DATASETS, (self._id,))]
        if head.get("compaction", 0) == merged:
            again = []
        self._seal(sorted({*changed} - {*again}), upto)
        self._add_parts(sorted({*changed, *again}), -merged if again else upto, upto)
        self.write_head()

    def matches_ledger(self) -> bool:
        """Return True if the head names the ledger's parts, and all parts exist."""
        head, parts = self.head(), self.parts()
        named = {name: str(dataset["part"]) for name, dataset in head.get("datasets", {}).items()}
        full = [
            layout.manifest_part(row["dataset"], part)
            for row in self._lake.ledger.rows(_PARTS, (self._id,))
            for part in json.loads(row["sealed"])
        ]
        return named == parts and not self._lake.folder.missing([*parts.values(), *full])

    def relist(self, number: int) -> None:
        """List all files of the ledger in one new part of each dataset, named after `number`, and in no other part.

        The head then names these parts. It does not name the jump yet: `update` adds the jump when all else is done.
        """
        ledger, jump = self._lake.ledger, int(self.head().get("jump", 0))
        with ledger.transaction():
            for statement in _RELIST:
                ledger.execute(statement, (self._id,))
        names = sorted(row["dataset"] for row in ledger.rows(_TOUCHED, (self._id, -1)))
        self._add_parts(names, number, ledger.exported_upto(self._lake.id))
        self.write_head(jump)

    def listed(self) -> tuple[dict[str, str], dict[str, set[int]]]:
        """Return datasets by the paths of listed files, and schema versions by dataset. Skips missing parts."""
        files: dict[str, str] = {}
        versions: dict[str, set[int]] = {}
        for name, dataset in self.head().get("datasets", {}).items():
            todo = [dataset["part"]]
            while todo:
                content = self._lake.folder.read(path := todo.pop())
                part = json.loads(content) if content else {}
                files |= dict.fromkeys((file["path"] for file in part.get("files", [])), name)
                versions.setdefault(name, set()).update(map(int, part.get("schemas", {})))
                if path == dataset["part"]:
                    todo += [f"{path.rpartition('/')[0]}/{each}" for each in part.get("before", [])]
        return files, versions

    def write_head(self, jump: int | None = None) -> None:
        """Write the head, if its content has changed.

        `jump`: the last jump that the head names; None: the newest of the log.
        """
        upto = self._lake.ledger.exported_upto(self._lake.id)
        content: dict[str, Any] = {
            "lake": self._id,
            "events_table": self._lake.events_table,
            "exported_upto": upto,
            "place": next(iter(log_places(self._lake, upto)), None),
            "jump": self._lake.ledger.newest_jump(self._lake.events_table) if jump is None else jump,
            "pipeline": self._lake.ledger.pipeline(),
            "compaction": int(self._lake.ledger.rows(_MERGED, (self._id,))[0]["number"]),
            "datasets": {name: {"part": part} for name, part in self.parts().items()},
        }
        states = self._lake.ledger.rows(_STATES, (self._id,))
        content["current"] = {row["dataset"]: {"seq": row["seq"], "as_of": row["as_of"]} for row in states}
        for row in states:
            state = content["current"][row["dataset"]]
            if isinstance(self._lake.root, ObjectPath):
                state["part"] = layout.state_part(row["dataset"], row["id"])
            else:
                folder = StateFolders(self._lake.root, row["dataset"]).version(row["seq"])
                state["folder"] = str(folder.relative_to(self._lake.root))
        hidden = self._lake.ledger.rows(_HIDDEN, (self._id,))
        content["without_current"] = {row["dataset"]: row["reason"] for row in hidden}
        self._lake.folder.write(layout.MANIFEST, json.dumps(content, indent=1, ensure_ascii=False).encode())

    def parts(self) -> dict[str, str]:
        """Return the path of the newest part of each dataset."""
        rows = self._lake.ledger.rows(_PARTS, (self._id,))
        return {row["dataset"]: layout.manifest_part(row["dataset"], row["part"]) for row in rows}

    def head(self) -> dict[str, Any]:
        """Return the head's content; an empty one if there is no head, or if an earlier server version wrote it."""
        content = self._lake.folder.read(layout.MANIFEST)
        head: dict[str, Any] = json.loads(content) if content else {}
        of_before = any("part" not in dataset for dataset in head.get("datasets", {}).values())
        return {} if of_before else head

    def _seal(self, names: Sequence[str], number: int) -> None:
        """Mark the newest part of each dataset as full, if it has FULL files.

        A part is marked only when the next part is written: before, its export might still fail.
        """
        if names:
            self._lake.ledger.execute(_SEAL, (self._id, json.dumps(names), FULL, number))

    def _add_parts(self, names: Sequence[str], number: int, upto: int) -> None:
        """Write a new part of each of these datasets, named after `number`, with its files up to that seq."""
        if not names:
            return
        ledger = self._lake.ledger
        asked = self._id, json.dumps(names)
        sealed = {row["dataset"]: json.loads(row["sealed"]) for row in ledger.rows(_PARTS, (self._id,))}
        files: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
        for file in ledger.rows(_OPEN, asked):
            files[file.pop("dataset")].append({name: value for name, value in file.items() if value is not None})
        schemas: dict[str, dict[str, Any]] = {}
        for row in ledger.rows(_SCHEMAS, asked):
            schema = {"columns": json.loads(row["columns"]), "key": json.loads(row["key"])}
            schemas.setdefault(row["dataset"], {})[str(row["version"])] = schema
        parts: dict[str, bytes] = {}
        for name in names:
            content = {
                "dataset": name,
                "schemas": schemas[name],
                "before": [f"{each}.json" for each in sealed.get(name, ())],
                "files": files[name],
            }
            parts[layout.manifest_part(name, number)] = json.dumps(content, ensure_ascii=False).encode()
        self._lake.folder.write_all(parts)
        ledger.execute(_STORE, (*asked, number, layout.MANIFEST_PART, upto))


def log_places(lake: Lake, upto: int) -> list[dict[str, Any]]:
    """Return the source's position of the last event up to a seq: none if it was dropped, several in a legacy table."""
    return [dict(row) for row in lake.ledger.rows(_LOG_PLACE.format(events=qualified(lake.events_table)), (upto,))]


def require_same_log(lake: Lake, head: dict[str, Any]) -> int | None:
    """Raise UnfitTargetError if a manifest with this head is ahead of the log, or can be until the log jumps.

    If the manifest does not know the newest jump of the log, return the first seq after that jump: the ledger may lack
    files that are in the lake. Otherwise return None.
    """
    listed, exported = int(head.get("exported_upto", 0)), lake.ledger.exported_upto(lake.id)
    if head and lake.ledger.waits_for_jump():
        raise missing_jump_error(lake.root)
    known, newest = int(head.get("jump", 0)), lake.ledger.newest_jump(lake.events_table)
    place = head.get("place")
    if known > newest:
        reason = f"its manifest has a jump of the log to seq {known}, and the log has no such jump"
    elif listed > exported and not listed < newest > known:
        reason = f"its manifest lists events up to seq {listed}, but the log only has exports up to {exported}"
    elif listed <= exported and place is not None and (places := log_places(lake, listed)) and place not in places:
        reason = f"the log has another event at seq {listed}"
    else:
        return newest if newest > known else None
    raise UnfitTargetError(
        f"{lake.root} is ahead of the log: {reason}, so the pipeline database was restored to an earlier state; "
        "name another PIPELINE_EXPORT_DIR, an empty folder, to begin a new lake"
    )
