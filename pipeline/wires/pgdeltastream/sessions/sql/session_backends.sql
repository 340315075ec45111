-- Backends of this database with these names, which belong to this user.
select a.pid, a.application_name as name, a.backend_type = 'walsender' as walsender
from pg_catalog.pg_stat_activity a
where a.application_name = any(%(names)s) and a.datname = pg_catalog.current_database()
    and a.usename = current_user
