-- Record that the rows of a range are events.
update pipeline.snapshot_ranges
set state = 'moved', left_out = %(left_out)s, rows_added = %(added)s, events_table = nullif(%(events_table)s, ''),
    last_seq = case when %(added)s > 0 then %(last_seq)s::bigint end,
    first_seq = case when %(added)s > 0 then %(last_seq)s::bigint - %(added)s + 1 end
where id = %(id)s
