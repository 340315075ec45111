-- The server process that serves this session now.
select pg_backend_pid()
