-- Ends this user's sessions that create a slot for this pipeline database.
select a.pid, pg_catalog.pg_terminate_backend(a.pid, %(milliseconds)s)
from pg_catalog.pg_stat_activity a
where a.application_name = %(program)s::text and a.datname = pg_catalog.current_database() and a.usename = current_user
