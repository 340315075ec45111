-- Let only one copy of a follower replace rows at a time, until the end of the transaction.
select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('pipeline_follower copies ' || %(source)s || ' ' || %(follower)s, 0))
