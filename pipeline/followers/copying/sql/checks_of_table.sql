-- Checks that a table or its partitions define, those of the table first, and not null constraints that are not valid.
-- Each has the statements that drop it, and that add it as NOT VALID. `recorded`: only checks in pipeline_follower.checks.
select k.conrelid::bigint as relation, k.conname::text as name, k.convalidated as is_valid,
    pg_catalog.format('alter table %%I.%%I drop constraint %%I', n.nspname, c.relname, k.conname) as drops,
    pg_catalog.format('alter table %%I.%%I add constraint %%I %%s', n.nspname, c.relname, k.conname,
        pg_catalog.pg_get_constraintdef(k.oid)) || case when k.convalidated then ' not valid' else '' end as adds
from (
    select pg_catalog.to_regclass(pg_catalog.format('%%I.%%I', %(schema)s::text, %(name)s::text)) as oid
) root
cross join lateral (
    select root.oid, 0 as level
    union all
    select t.relid, t.level from pg_catalog.pg_partition_tree(root.oid) t where t.level > 0
) t
join pg_catalog.pg_class c on c.oid = t.oid
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
join pg_catalog.pg_constraint k on k.conrelid = c.oid and k.coninhcount = 0
    and (k.contype = 'c' and coalesce((pg_catalog.to_jsonb(k) ->> 'conenforced')::boolean, true)
        or k.contype = 'n' and not k.convalidated)
where not %(recorded)s or exists (
    select from pipeline_follower.checks m
    where m.source_database_id = %(source)s and m.follower = %(follower)s and m.relation = k.conrelid and m.name = k.conname
)
order by t.level, 1, 2
