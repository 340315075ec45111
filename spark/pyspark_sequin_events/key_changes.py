"""The log with each update that changed a key as two events: a delete of the old key and an insert of the new one."""

from __future__ import annotations

from collections.abc import Mapping

_SPLIT: Mapping[str, str] = {
    "action": "case part when 1 then 'delete' when 2 then 'insert' else e.action end",
    "record_pk": "case part when 1 then old.record_pk else e.record_pk end",
    "record": "case part when 1 then old.record else e.record end",
    "changes": "case part when 0 then e.changes end",
    "exact": "case part when 1 then null else e.exact end",
    "unchanged_columns": "case part when 1 then null else e.unchanged_columns end",
}
_VERSIONS = """
    select r.source_id, r.epoch, r.table_oid, r.key_columns, r.columns, r.from_lsn, r.from_idx,
        lead(r.from_lsn) over w as until_lsn, lead(r.from_idx) over w as until_idx
    from pipeline.relations r
    window w as (partition by r.source_id, r.epoch, r.table_oid order by r.from_lsn, r.from_idx, r.id)"""
_OLD_KEY = """
    select case when octet_length(whole.key) > 2000
            then 'sha256:' || encode(sha256(convert_to(whole.key, 'UTF8')), 'hex') else whole.key end as record_pk,
        whole.record
    from (
        select case when count(*) = 1 then min(part.plain) else '[' || string_agg(part.json, ',' order by n) || ']' end
                as key,
            jsonb_object_agg(name, as_json) as record
        from unnest(case when e.changes ?| f.key_columns then f.key_columns end) with ordinality key (name, n)
        cross join lateral (select e.record || e.changes as old) was
        cross join lateral (select was.old -> name as as_json, was.old ->> name as as_text) written
        cross join lateral (
            select (c ->> 'base_type_oid')::bigint as oid from jsonb_array_elements(f.columns) c
            where c ->> 'name' = name limit 1
        ) type
        cross join lateral (
            select case when jsonb_typeof(as_json) <> 'number' then null
                when type.oid = 700 then as_text::float4::text
                when type.oid = 701 then as_text::float8::text end as as_float
        ) printed
        cross join lateral (
            select coalesce(as_float, as_json::text) as json,
                case when as_float is not null then as_float
                    when type.oid = 16 then left(as_text, 1)
                    when type.oid = 3802 then as_json::text
                    else as_text end as plain
        ) part
    ) whole
    where whole.key <> e.record_pk"""
ORDER = "seq, part"
"""The delete comes before the insert, which has the same seq."""


def split(events: str, columns: Mapping[str, str]) -> str:
    """A relation with these columns of an events table, whose quoted name is `events`, and `part`.

    The delete has the key's columns in its record, and nothing else. Which columns were the key then is in the relation
    history; the text of a key is as pipeline/wal/record_key.py writes it.
    """
    shown = ", ".join(f"{_SPLIT.get(name, f'e.{name}')} as {name}" for name in columns)
    return f"""(
    select {shown}, part
    from {events} e
    left join ({_VERSIONS}) f on e.action = 'update' and e.changes is not null
        and f.source_id = e.source_database_id and f.epoch = e.source_epoch and f.table_oid = e.source_table_oid
        and (e.commit_lsn, e.commit_idx) >= (f.from_lsn, f.from_idx)
        and (f.until_lsn is null or (e.commit_lsn, e.commit_idx) < (f.until_lsn, f.until_idx))
    left join lateral ({_OLD_KEY}) old on true
    cross join lateral unnest(case when old.record_pk is null then array[0] else array[1, 2] end) as parts (part)
) split"""
