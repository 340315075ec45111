-- These columns of a relation, ordered by name: name, type, modifier and number of each, and true if it is in the key.
select coalesce(jsonb_agg(jsonb_build_array(
        a.attname, a.atttypid::bigint, a.atttypmod, a.attnum, coalesce(a.attnum = any((i.indkey::int2[])[:i.indnkeyatts - 1]), false)
    ) order by a.attname collate "C"), '[]')
from pg_catalog.pg_class c
join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
    and a.attname = any(%(columns)s::text[])
left join pg_catalog.pg_index i on i.indrelid = c.oid
    and case c.relreplident when 'i' then i.indisreplident when 'n' then false else i.indisprimary end
where c.oid = %(oid)s::oid
