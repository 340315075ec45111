-- True if a role exists; `refused`: why it has more privileges than a reader, null if it does not.
select n.name as role, r.oid is not null as present, coalesce(r.rolcanlogin, false) as can_login,
    case
        when n.name ~ '^pg_' or n.name in ('public', 'none') then 'its name is reserved by Postgres'
        when r.rolsuper then 'it is a superuser'
        when r.oid = (select oid from pg_roles where rolname = current_user) then 'it is the server''s own user'
        when exists (
            select from pg_class c
            where c.relnamespace in (select oid from pg_namespace where nspname in ('pipeline', 'public', %(schema)s))
                and c.relkind in ('r', 'p', 'v', 'S') and pg_has_role(r.oid, c.relowner, 'member')
                and (c.oid = to_regclass(%(table)s) or c.relnamespace = 'pipeline'::regnamespace
                    or c.relname in ('wal_events', 'consumer_records'))
        ) then 'it owns the server''s tables, or is a member of the role that does'
        when pg_has_role(r.oid, (select datdba from pg_database where datname = current_database()), 'member')
            then 'it owns the database, or is a member of the role that does'
        when exists (
            select from pg_roles p
            where p.rolname in ('pg_read_all_data', 'pg_write_all_data') and pg_has_role(r.oid, p.oid, 'member')
        ) then 'it is a member of pg_read_all_data or pg_write_all_data'
    end as refused
from (select %(role)s::text as name) n
left join pg_roles r on r.rolname = n.name
