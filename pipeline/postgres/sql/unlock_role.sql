-- Releases a role before the session ends.
select pg_catalog.pg_advisory_unlock(1346981968, pg_catalog.hashtext('pipeline:' || %(role)s))
