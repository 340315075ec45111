-- One exporter at a time starts its script, so that two that have waited for a third do not collide.
select pg_try_advisory_lock(hashtextextended('pipeline export to ' || %(directory)s, 0))
