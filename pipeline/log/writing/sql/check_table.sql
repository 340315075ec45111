-- Check if its rules, triggers, row security and columns allow to copy rows into an events table. For a partitioned table,
-- Postgres never resets relhasrules and relhastriggers, so this checks for rules and triggers themselves.
select t.oid::bigint, coalesce(pg_sequence_last_value(%(sequence)s::regclass), 0),
    not t.relrowsecurity
    and not (t.relhasrules and exists (select from pg_rewrite w where w.ev_class = t.oid))
    and not (t.relhastriggers and exists (select from pg_trigger g where g.tgrelid = t.oid)) and (
        select coalesce(jsonb_object_agg(a.attname, format_type(a.atttypid, a.atttypmod)), '{}') @> %(columns)s::jsonb
        from pg_attribute a where a.attrelid = t.oid and a.attnum > 0 and not a.attisdropped and a.attgenerated = '')
from pg_class t
where t.oid = to_regclass(%(table)s::text) and t.relkind = 'p'
