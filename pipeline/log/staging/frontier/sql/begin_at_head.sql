-- Move the watermark and the progress for a batch that is written directly, and do what `then` says if both are as the
-- writer expected. Until this transaction ends, no other session writes the log, and no newer worker can take over.
with moved as (
    update pipeline.shuffle_progress s
    set commit_lsn = %(last_lsn)s, last_seq = %(last_seq)s, events = s.events + %(rows)s,
        committed_at = timestamptz '2000-01-01 00:00:00+00' + %(newest_at)s * interval '1 microsecond',
        updated_at = clock_timestamp()
    where s.source_id = %(source)s and s.epoch = %(epoch)s and s.commit_lsn = %(after)s
        and coalesce(pg_sequence_last_value(%(sequence)s::regclass), 0) = %(last_seq)s - %(rows)s
        and not exists (select from pipeline.adopted_tables a where a.source_id = s.source_id and a.state = 'waiting')
    returning 1
), stored as (
    {set_progress}
    where source_id = %(source)s and worker = 0 and generation = %(generation)s and epoch = %(epoch)s
        and exists (select from moved)
    returning 1
)
%(then)s
