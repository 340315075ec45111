-- List tables that can be published, the partitioned tables above them, and whether updates and deletes can be
-- published. Partitions are listed as well as their roots: a detached partition stays published, and a new one is
-- published at once.
with published as (
    select coalesce(
        (select to_jsonb(p) ->> 'pubgencols' = 's' from pg_catalog.pg_publication p where p.pubname = %(publication)s),
        current_setting('server_version_num')::int >= 180000) as stored
), found as (
    select c.oid, c.relkind, c.relpersistence, c.relowner, c.relnamespace, n.nspname, c.relname, c.relreplident,
        case when c.relispartition then array(select a.relid::oid
            from pg_catalog.pg_partition_ancestors(c.oid) with ordinality a(relid, step) order by a.step)
            else array[c.oid] end as line,
        -- As RelationGetReplicaIndex: a deferrable primary key identifies nothing.
        -- A later partition inherits a primary key, but no replica identity.
        case (case when c.relkind = 'p' then 'd' else c.relreplident end)
            when 'f' then true
            when 'd' then exists (select from pg_catalog.pg_index i
                where i.indrelid = c.oid and i.indisprimary and i.indimmediate and i.indisvalid)
            when 'i' then exists (select from pg_catalog.pg_index i
                where i.indrelid = c.oid and i.indisreplident and i.indimmediate and i.indisvalid)
            else false
        end as identified,
        -- With an unpublished generated column in the identity, updates fail (from 18 on), or a part of it is not sent.
        exists (select from pg_catalog.pg_attribute a
            where a.attrelid = c.oid and a.attgenerated <> '' and not a.attisdropped
                and not (published.stored and a.attgenerated = 's')
                and case c.relreplident
                    when 'f' then current_setting('server_version_num')::int >= 180000
                    else exists (select from pg_catalog.pg_index i
                        where i.indrelid = c.oid and a.attnum = any((i.indkey::int2[])[:i.indnkeyatts - 1])
                            and case c.relreplident when 'd' then i.indisprimary else i.indisreplident end)
                end) as incomplete
    from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace cross join published
    where c.relkind in ('r', 'p') and c.relpersistence <> 't' and c.oid >= 16384
        and n.nspname not in ('pg_catalog', 'information_schema') and n.nspname !~ '^pg_(toast|temp)'
), class as (
    select f.*, f.identified and not f.incomplete as keyed,
        -- Only tables with rows: Postgres checks the partition, never the partitioned table.
        f.relkind = 'r' and not (f.identified and not (f.incomplete and current_setting('server_version_num')::int >= 180000))
            as refuses_updates
    from found f
), tree as (
    select part.oid, bool_and(class.keyed) as keyed
    from class cross join lateral unnest(class.line) part(oid)
    group by part.oid
)
select c.oid::bigint as oid, c.nspname::text as schema, c.relname::text as name, c.relkind = 'p' as partitioned, t.keyed,
    c.relreplident = 'f' as full_identity,
    not c.keyed and coalesce(parent.keyed, true) as lacks_key, c.refuses_updates,
    -- In the order of numbers: an index's order says nothing about a row. With FULL, events have the primary key.
    array(select in_root.attnum::int
        from pg_catalog.pg_index i cross join unnest(i.indkey::int2[]) with ordinality k(attnum, place)
        join pg_catalog.pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
        join pg_catalog.pg_attribute in_root on in_root.attrelid = c.line[cardinality(c.line)] and in_root.attname = a.attname
        where c.relkind = 'r' and i.indrelid = c.oid and k.place <= i.indnkeyatts and case c.relreplident
            when 'd' then i.indisprimary and i.indimmediate
            when 'i' then i.indisreplident
            when 'f' then i.indisprimary
        end
        order by in_root.attnum) as key_columns,
    coalesce(pg_catalog.pg_has_role(publisher.oid, c.relowner, 'USAGE')
        and pg_catalog.has_schema_privilege(publisher.oid, c.relnamespace, 'USAGE'), false) as owned,
    c.line::bigint[] as line, above.names, above.schemas
from class c
cross join (
    select case when %(by_publisher)s
        then (select p.pubowner from pg_catalog.pg_publication p where p.pubname = %(publication)s)
        else (select r.oid from pg_catalog.pg_roles r where r.rolname = current_user) end as oid
) publisher
join tree t on t.oid = c.oid
left join class parent on parent.oid = c.line[2]
cross join lateral (
    select array_agg(n.nspname || '.' || a.relname order by l.step) as names,
        array_agg(n.oid::bigint order by l.step) as schemas
    from unnest(c.line) with ordinality l(oid, step)
    join pg_catalog.pg_class a on a.oid = l.oid join pg_catalog.pg_namespace n on n.oid = a.relnamespace
) above
where c.relpersistence = 'p'
order by c.nspname, c.relname
