-- Identifies this database and its running server: a standby and a restored copy have another start time.
select pg_catalog.concat_ws(' ', d.oid, pg_catalog.pg_postmaster_start_time())
from pg_catalog.pg_database d where d.datname operator(pg_catalog.=) pg_catalog.current_database()
