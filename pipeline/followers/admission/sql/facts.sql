-- Return facts that decide if a database can be a follower, and if an earlier applier left its schema there.
select pg_catalog.current_setting('server_version_num')::int as version,
    pg_catalog.current_setting('server_version') as shown_version,
    pg_catalog.pg_is_in_recovery() as standby,
    pg_catalog.current_setting('transaction_read_only') = 'on' as read_only,
    pg_catalog.pg_encoding_to_char(d.encoding)::text as encoding,
    d.datname::text as database, current_user::text as user_name,
    pg_catalog.has_database_privilege(d.oid, 'create') as may_create_schemas,
    pg_catalog.has_database_privilege(d.oid, 'temporary') as may_make_temporary_tables,
    n.oid is not null as has_schema,
    coalesce(pg_catalog.has_schema_privilege(n.oid, 'usage') and pg_catalog.has_schema_privilege(n.oid, 'create'), false)
        and coalesce((
            select pg_catalog.bool_and(pg_catalog.has_table_privilege(t.oid, r.name))
            from pg_catalog.pg_class t cross join (values ('select'), ('insert'), ('update'), ('delete')) r (name)
            where t.relnamespace = n.oid and t.relkind = 'r'
        ), true) as may_use_schema,
    exists (
        select from pg_catalog.pg_class t where t.relnamespace = n.oid and t.relname = 'position' and t.relkind = 'r'
    ) as is_installed
from pg_catalog.pg_database d
left join pg_catalog.pg_namespace n on n.nspname = 'pipeline_follower'
where d.datname = pg_catalog.current_database()
