-- Describe a table as the stream would now; `key`: in the replica identity, which with FULL is every column. As in
-- RelationGetReplicaIndex, a deferrable primary key identifies nothing.
select c.relname::text as name, n.nspname::text as schema, c.relreplident::text as identity,
    (select coalesce(jsonb_agg(jsonb_build_array(
            c.relreplident = 'f' or exists (select from pg_catalog.pg_index i
                where i.indrelid = c.oid and i.indisvalid and i.indimmediate and a.attnum = any((i.indkey::int2[])[:i.indnkeyatts - 1])
                    and case c.relreplident when 'd' then i.indisprimary when 'i' then i.indisreplident else false end),
            a.attname, a.atttypid::bigint, a.atttypmod, a.attnum) order by a.attnum), '[]')
        from pg_catalog.pg_attribute a
        where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
            and (a.attgenerated = '' or a.attgenerated = 's' and current_setting('server_version_num')::int >= 180000)
    ) as columns
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where c.oid = %(oid)s
