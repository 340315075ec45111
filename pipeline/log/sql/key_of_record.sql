-- record_pk of a row that exists only as jsonb, and its key columns as `record`, by the rule of pipeline/wal/record_key.py.
-- It uses the expressions `record` (jsonb), `names` (the key's columns in order) and `columns` (of pipeline.relations).
select (case when octet_length(whole.key) > 2000 then 'sha256:' || encode(sha256(convert_to(whole.key, 'UTF8')), 'hex')
    else whole.key end) collate "C" as record_pk, whole.record
from (
    select case when count(*) = 1 then min(part.plain) else '[' || string_agg(part.json, ',' order by n) || ']' end as key,
        jsonb_object_agg(name, as_json) as record
    from unnest({names}) with ordinality key (name, n)
    cross join lateral (select {record} -> name as as_json, {record} ->> name as as_text) as written
    cross join lateral (
        select (c ->> 'base_type_oid')::bigint as oid from jsonb_array_elements({columns}) c
        where c ->> 'name' = name limit 1
    ) type
    cross join lateral (
        -- jsonb writes exponents out in full; in a key a float is written as the source prints it.
        select case when jsonb_typeof(as_json) <> 'number' then null
            when type.oid = 700 then as_text::float4::text
            when type.oid = 701 then as_text::float8::text end as as_float
    ) printed
    cross join lateral (
        select coalesce(as_float, as_json::text) as json,
            case when as_float is not null then as_float
                when type.oid = 16 then left(as_text, 1)  -- t or f
                when type.oid = 3802 then as_json::text
                else as_text end as plain
    ) part
) whole
