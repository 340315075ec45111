-- A run has begun; its session says by a lock that it is at work.
with run as (
    insert into pipeline.export_runs (trigger, holder) values (%(trigger)s, %(holder)s) returning id
)
select id, pg_advisory_lock(%(lock)s, id::int) from run
