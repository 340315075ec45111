-- A sample of positions and counts, for rates; an hour of them is kept.
with old as (
    delete from pipeline.lag_samples where sampled_at < now() - interval '1 hour'
)
insert into pipeline.lag_samples (source_lsn, confirmed_lsn, staged_lsn, shuffled_lsn, staged_changes, events)
values (%(source_lsn)s, %(confirmed_lsn)s, %(staged_lsn)s, %(shuffled_lsn)s, %(staged_changes)s, %(events)s)
