-- Store in a follower that the log of this source feeds these tables and no others.
with named as (
    select * from unnest(%(oids)s::bigint[], %(schemas)s::text[], %(names)s::text[]) as n (oid, schema, name)
), gone as (
    delete from pipeline_follower.tables t
    where t.source_database_id = %(source)s and t.follower = %(follower)s and t.table_oid not in (select oid from named)
)
insert into pipeline_follower.tables (source_database_id, follower, table_oid, table_schema, table_name)
select %(source)s, %(follower)s, oid, schema, name from named
on conflict (source_database_id, follower, table_oid) do update
    set table_schema = excluded.table_schema, table_name = excluded.table_name
