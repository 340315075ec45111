-- How this session's user is a superuser or can become one, in words; no row if it cannot. Such a user
-- may use the rights of a superuser, of a role that runs programs or accesses files of the server, or of a role that may
-- grant itself these rights (createrole until 15); or may set which programs the server runs. The user may have to grant
-- itself a role first, with an admin option; only a superuser grants a superuser's role.
with recursive reach as (
    select r.oid, r.rolname, r.rolsuper, r.rolcreaterole from pg_catalog.pg_roles r
    where r.rolname operator(pg_catalog.=) session_user
    union
    select g.oid, g.rolname, g.rolsuper, g.rolcreaterole
    from reach
    join pg_catalog.pg_auth_members m on m.member operator(pg_catalog.=) reach.oid
    join pg_catalog.pg_roles g on g.oid operator(pg_catalog.=) m.roleid
    cross join lateral (
        -- Until 15 a member may always take the role.
        select coalesce((pg_catalog.to_jsonb(m) operator(pg_catalog.->>) 'set_option')::pg_catalog.bool, true)
            or (pg_catalog.to_jsonb(m) operator(pg_catalog.->>) 'inherit_option')::pg_catalog.bool as granted
    ) has
    where has.granted or m.admin_option and not g.rolsuper
), ways as (
    select case
        when reach.rolsuper then case when reach.rolname operator(pg_catalog.=) session_user then 'is a superuser'
            else pg_catalog.format('can become the superuser "%s"', reach.rolname) end
        when reach.rolname operator(pg_catalog.=) any (
            array['pg_execute_server_program', 'pg_write_server_files', 'pg_read_server_files']::pg_catalog.name[])
            then pg_catalog.format('has the rights of %s, with which it can become a superuser', reach.rolname)
        when reach.rolcreaterole and pg_catalog.current_setting('server_version_num')::pg_catalog.int4
                operator(pg_catalog.<) 160000
            then 'may create roles, with which it can become a superuser until Postgres 15'
        when command.name is not null
            then pg_catalog.format('may alter %s, with which it can become a superuser', command.name)
        end as how, reach.rolsuper
    from reach
    left join lateral (
        select p.name
        from pg_catalog.unnest(array['archive_command', 'archive_library', 'archive_cleanup_command', 'restore_command',
            'recovery_end_command', 'shared_preload_libraries', 'session_preload_libraries', 'dynamic_library_path',
            'ssl_passphrase_command']) p (name)
        where not reach.rolsuper and pg_catalog.has_parameter_privilege(reach.oid, p.name, 'alter system')
        limit 1
    ) command on true
)
select how from ways where how is not null order by rolsuper desc, how limit 1
