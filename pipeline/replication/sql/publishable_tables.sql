-- Tables that can be published, each to be listed once: plain tables, leaves with a key of their own, partition roots.
with class as (
    select c.oid, c.relkind, c.relispartition, n.nspname, c.relname,
        coalesce(pg_partition_root(c.oid), c.oid) as root,
        -- As RelationGetReplicaIndex: a deferrable primary key identifies nothing.
        -- A partition that comes later inherits a primary key, but no replica identity.
        case (case when c.relkind = 'p' then 'd' else c.relreplident end)
            when 'f' then true
            when 'd' then exists (select from pg_index i
                where i.indrelid = c.oid and i.indisprimary and i.indimmediate and i.indisvalid)
            when 'i' then exists (select from pg_index i
                where i.indrelid = c.oid and i.indisreplident and i.indimmediate and i.indisvalid)
            else false
        end as keyed,
        -- From 18 on an identity with an unpublished generated column makes updates fail.
        exists (select from pg_attribute a join pg_index i on i.indrelid = a.attrelid
            where a.attrelid = c.oid and a.attgenerated <> '' and a.attnum = any(i.indkey::int2[])
                and case c.relreplident when 'd' then i.indisprimary when 'i' then i.indisreplident else false end
        ) or (c.relreplident = 'f' and exists (select from pg_attribute a
            where a.attrelid = c.oid and a.attgenerated <> '' and not a.attisdropped)
            and current_setting('server_version_num')::int >= 180000) as generated_key
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where c.relkind in ('r', 'p') and c.relpersistence = 'p'
        and n.nspname not in ('pg_catalog', 'information_schema') and n.nspname !~ '^pg_(toast|temp)'
        and c.oid >= 16384
), tree as (
    select root, bool_and(keyed and not generated_key) as keyed
    from class group by root
)
select c.oid::bigint as oid, c.nspname::text as schema, c.relname::text as name,
    r.nspname::text as root_schema, r.relname::text as root_name,
    case when c.oid = c.root then t.keyed else c.keyed and not c.generated_key end as keyed
from class c
join class r on r.oid = c.root
join tree t on t.root = c.root
where c.oid = c.root
    or (c.relkind = 'r' and not t.keyed and c.keyed and not c.generated_key)
order by c.nspname, c.relname
