-- True if a session of this name is in this database, of a program on the machine of the one that asks.
select exists (
    select from pg_stat_activity a join pg_stat_activity me on me.pid = pg_backend_pid()
    where a.application_name = %(name)s and a.datid = me.datid and a.client_addr is not distinct from me.client_addr)
