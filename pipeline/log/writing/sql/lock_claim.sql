-- Until the end of its transaction, this lock shows which session is claiming.
select pg_advisory_xact_lock(hashtextextended('pipeline claim ' || %(source)s::text || ' ' || %(worker)s::text, 0))
