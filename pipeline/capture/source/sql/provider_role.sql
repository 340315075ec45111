-- The role by which a managed service is told, if this server is of one.
select rolname::text from pg_catalog.pg_roles where rolname = any (%(roles)s)
order by array_position(%(roles)s::text[], rolname::text) limit 1
