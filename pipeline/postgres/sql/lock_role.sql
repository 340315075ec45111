-- The role's advisory lock, for the session; and before it, shared, one that says which staged rows its holder knows:
-- whoever sees the first sees the other.
select case
    when not pg_catalog.pg_try_advisory_lock_shared(1346981968, pg_catalog.hashtext('pipeline staged rows ' || %(rows)s))
        then false
    when pg_catalog.pg_try_advisory_lock(1346981968, pg_catalog.hashtext('pipeline:' || %(role)s)) then true
    else not pg_catalog.pg_advisory_unlock_shared(1346981968, pg_catalog.hashtext('pipeline staged rows ' || %(rows)s))
end
