-- Record that a run has begun; its session holds a lock as long as it runs.
with run as (
    insert into pipeline.export_runs (trigger, holder) values (%(trigger)s, %(holder)s) returning id
)
select id, pg_advisory_lock(%(lock)s, id::int) from run
