-- Count the ranges of a backfill that have become events, once, and delete them.
with gone as (
    delete from pipeline.snapshot_ranges where backfill_id = %(backfill)s and state = 'moved'
    returning rows_read, rows_added, events_table, first_seq, last_seq, left_out
), newest as (
    select events_table from gone where last_seq is not null order by last_seq desc limit 1
)
select count(*)::integer as ranges, coalesce(sum(rows_read), 0)::bigint as rows_read,
    coalesce(sum(rows_added), 0)::bigint as rows_added, (select events_table from newest) as events_table,
    min(first_seq) filter (where events_table = (select events_table from newest)) as first_seq,
    max(last_seq) filter (where events_table = (select events_table from newest)) as last_seq,
    (select coalesce(array_agg(pk), '{}') from gone, unnest(gone.left_out) pk) as left_out
from gone
