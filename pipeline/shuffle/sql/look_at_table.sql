-- What decides whether rows can be copied into an events table: its partition of a seq, what acts on rows, its columns.
select t.oid::bigint, coalesce(pg_sequence_last_value(%(sequence)s::regclass), 0),
    not (t.relhasrules or t.relhastriggers or t.relrowsecurity) and (
        select coalesce(jsonb_object_agg(a.attname, format_type(a.atttypid, a.atttypmod)), '{}') @> %(columns)s::jsonb
        from pg_attribute a where a.attrelid = t.oid and a.attnum > 0 and not a.attisdropped and a.attgenerated = '')
from pg_class t
where t.oid = to_regclass(%(table)s::text) and t.relkind = 'p'
