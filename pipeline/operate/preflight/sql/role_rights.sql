-- The rights of a role, which may not exist yet, that the server needs at this database, and the quoted names of schemas
-- and tables among these tables that it may not use or read. A role that does not exist has the rights of public.
with role as (
    select r.rolname is not null as present, coalesce(r.oid, 0) as oid, coalesce(r.rolcanlogin, false) as may_login,
        coalesce(r.rolsuper, false) as super, coalesce(r.rolreplication, false) as replication,
        coalesce(r.rolbypassrls, false) as bypassrls
    from (select) one left join pg_catalog.pg_roles r on r.rolname operator(pg_catalog.=) %(role)s::pg_catalog.name
)
select role.present, role.may_login,
    role.super or role.replication or exists (select from pg_catalog.pg_roles g
        where g.rolname operator(pg_catalog.=) 'rds_replication' and role.present
            and pg_catalog.pg_has_role(role.oid, g.oid, 'member')) as may_replicate,
    pg_catalog.has_database_privilege(role.oid, d.oid, 'connect') as may_connect,
    array(
        select distinct pg_catalog.quote_ident(n.nspname)
        from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid operator(pg_catalog.=) c.relnamespace
        where c.oid operator(pg_catalog.=) any (%(oids)s::pg_catalog.oid[])
            and not pg_catalog.has_schema_privilege(role.oid, n.oid, 'usage')
        order by 1
    ) as schemas,
    array(
        select pg_catalog.format('%%I.%%I', n.nspname, c.relname)
        from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid operator(pg_catalog.=) c.relnamespace
        where c.oid operator(pg_catalog.=) any (%(whole)s::pg_catalog.oid[])
            and not pg_catalog.has_table_privilege(role.oid, c.oid, 'select')
        order by n.nspname, c.relname
    ) as tables,
    not (role.super or role.bypassrls) and exists (
        select from pg_catalog.pg_class c
        where c.oid operator(pg_catalog.=) any (%(oids)s::pg_catalog.oid[]) and c.relrowsecurity
            and (c.relforcerowsecurity or not role.present
                or not pg_catalog.pg_has_role(role.oid, c.relowner, 'usage'))
    ) as hidden
from role join pg_catalog.pg_database d on d.datname operator(pg_catalog.=) pg_catalog.current_database()
