-- End this user's walsenders of that name, except the one that streams the slot.
select pg_catalog.pg_terminate_backend(a.pid)
from pg_catalog.pg_stat_activity a
join pg_catalog.pg_replication_slots s on s.slot_name = %(slot)s and s.active_pid <> a.pid
where a.application_name = %(name)s and a.backend_type = 'walsender'
    and a.datname = pg_catalog.current_database() and a.usename = current_user
