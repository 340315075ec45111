-- Objects that a role may use but should not, by a grant to public or as a member of another role.
select string_agg(distinct what, ', ') from (
    select c.oid::regclass::text as what
    from pg_class c
    where (c.relnamespace = 'pipeline'::regnamespace
            or c.relname in ('wal_events', 'consumer_records') and c.relnamespace = 'public'::regnamespace)
        and c.relkind in ('r', 'p', 'v') and not c.relispartition
        and has_schema_privilege(%(role)s, c.relnamespace, 'usage')
        and has_table_privilege(%(role)s, c.oid, 'select, insert, update, delete, truncate')
    union all
    select p.oid::regprocedure::text
    from pg_proc p
    where p.pronamespace = 'pipeline'::regnamespace and p.proname not in ('populate', 'before_jump') -- these read no events
        and has_schema_privilege(%(role)s, p.pronamespace, 'usage')
        and has_function_privilege(%(role)s, p.oid, 'execute')
    union all
    select 'changing ' || c.oid::regclass::text
    from pg_class c
    where c.oid = %(table)s::regclass and has_table_privilege(%(role)s, c.oid, 'insert, update, delete, truncate')
) surplus
