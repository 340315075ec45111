-- Until its transaction ends, nobody else adds a relation that the history does not have.
select pg_advisory_xact_lock(hashtextextended('pipeline relations ' || %(source)s::text, 0))
