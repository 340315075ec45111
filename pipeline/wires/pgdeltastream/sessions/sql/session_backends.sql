-- What this database's sessions of these names are at the source: pid, name, and whether it is a walsender.
select a.pid, a.application_name as name, a.backend_type = 'walsender' as walsender
from pg_catalog.pg_stat_activity a
where a.application_name = any(%(names)s) and a.datname = pg_catalog.current_database()
    and a.usename = current_user
