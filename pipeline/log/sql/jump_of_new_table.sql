-- Let an events table that is created after a jump of others begin there: the lost log may have had it, too.
with jump as (
    insert into pipeline.seq_jumps (events_table, before, after, reason)
    select %(name)s, 0, max(j.after), 'it was created behind a jump of other events tables' from pipeline.seq_jumps j
    having max(j.after) is not null
    on conflict do nothing
    returning after
)
select setval(%(sequence)s::regclass, j.after - 1) from jump j
