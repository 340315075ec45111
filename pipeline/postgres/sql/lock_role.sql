-- The role's advisory lock, for the session.
select pg_catalog.pg_try_advisory_lock(1346981968, pg_catalog.hashtext('pipeline:' || %(role)s))
