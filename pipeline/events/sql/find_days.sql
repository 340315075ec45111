-- The days, in UTC, on which rows that are about to be added were committed.
select distinct date_trunc('day', w.committed_at, 'UTC') from {rows} w order by 1
