-- Until this transaction ends, no other session adds a relation to the history.
select pg_advisory_xact_lock(hashtextextended('pipeline relations ' || %(source)s::text, 0))
