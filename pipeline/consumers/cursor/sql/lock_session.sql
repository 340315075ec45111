-- Show that this process lives, for as long as the session does; cursors name it as `reader_session`.
select pg_catalog.pg_try_advisory_lock(1346981969, pg_catalog.hashtext(%(session)s))
