-- Return the quoted name of each of these tables and how many rows Postgres estimates it to have, with its partitions.
-- A table is found by its oid, or else by its name; exists is false for a table that does not exist.
select case when f.oid is null then '' else pg_catalog.format('%%I.%%I', f.nspname, f.relname) end as name,
    coalesce(f.relkind = 'r', false) as plain,
    coalesce((
        select sum(greatest(p.reltuples, 0)) from pg_catalog.pg_class p
        where p.oid = f.oid or p.oid in (select relid from pg_catalog.pg_partition_tree(f.oid))
    ), 0)::bigint as estimate,
    f.oid is not null as exists
from unnest(%(oids)s::bigint[], %(schemas)s::text[], %(names)s::text[]) with ordinality w (oid, schema, name, number)
left join (
    select t.oid, t.relname, t.relkind, n.nspname
    from pg_catalog.pg_class t join pg_catalog.pg_namespace n on n.oid = t.relnamespace
    where t.relkind in ('r', 'p')
) f on f.oid = w.oid or w.oid is null and (f.nspname, f.relname) = (w.schema, w.name)
order by w.number
