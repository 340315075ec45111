-- Record routes that apply from the watermark on, whose last_seq now belongs to the new default table.
with moved as (
    update pipeline.shuffle_progress set last_seq = nullif(%(last_seq)s::bigint, 0) where source_id = %(source)s
    returning source_id, epoch, commit_lsn
)
insert into pipeline.routes (source_id, epoch, after_lsn, events_table, routes, first_seqs)
select source_id, epoch, commit_lsn, %(events_table)s, %(routes)s, %(first_seqs)s from moved
returning after_lsn
