-- Until its transaction ends, a claim can be told by this lock, which names its session.
select pg_advisory_xact_lock(hashtextextended('pipeline claim ' || %(source)s::text || ' ' || %(worker)s::text, 0))
