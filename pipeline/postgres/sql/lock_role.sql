-- Takes the role's advisory lock for the session. Before it the session takes a shared lock, whose name says which
-- staged rows the holder knows: a session that sees the role's lock sees the shared one, too.
select case
    when not pg_catalog.pg_try_advisory_lock_shared(1346981968, pg_catalog.hashtext('pipeline staged rows ' || %(rows)s))
        then false
    when pg_catalog.pg_try_advisory_lock(1346981968, pg_catalog.hashtext('pipeline:' || %(role)s)) then true
    else not pg_catalog.pg_advisory_unlock_shared(1346981968, pg_catalog.hashtext('pipeline staged rows ' || %(rows)s))
end
