-- Count ranges that have become events.
update pipeline.backfills
set ranges_done = ranges_done + %(ranges)s, rows_read = rows_read + %(rows_read)s, rows_added = rows_added + %(rows_added)s,
    first_seq = case when events_table = %(events_table)s then coalesce(first_seq, %(first_seq)s)
        else coalesce(%(first_seq)s, first_seq) end,
    last_seq = coalesce(%(last_seq)s, last_seq),
    events_table = coalesce(%(events_table)s, events_table)
where id = %(id)s
