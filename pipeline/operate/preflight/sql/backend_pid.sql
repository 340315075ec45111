-- The server process behind this session, now.
select pg_backend_pid()
