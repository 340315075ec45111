-- The role's advisory lock, for the session; and beside it, shared, one that says which staged rows its holder knows.
select case when pg_catalog.pg_try_advisory_lock(1346981968, pg_catalog.hashtext('pipeline:' || %(role)s))
    then pg_catalog.pg_try_advisory_lock_shared(1346981968, pg_catalog.hashtext('pipeline staged rows ' || %(rows)s))
    else false end
