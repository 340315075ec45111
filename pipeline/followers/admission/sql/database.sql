-- Which database this is.
select (select system_identifier::text from pg_catalog.pg_control_system()) as system_identifier,
    d.oid::bigint as database_oid, d.datname::text as database_name
from pg_catalog.pg_database d where d.datname = pg_catalog.current_database()
