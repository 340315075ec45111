-- The watermark and the counts of the events tables move with the rows, in their transaction.
with counted as (
    update pipeline.events_tables t
    set last_seq = m.last_seq, events = t.events + m.events, updated_at = clock_timestamp()
    from unnest(%(names)s::text[], %(seqs)s::bigint[], %(added)s::bigint[]) as m (name, last_seq, events)
    where t.source_id = %(source)s and t.name = m.name
)
update pipeline.shuffle_progress p
set commit_lsn = %(commit_lsn)s,
    last_seq = head.seq,
    committed_at = coalesce((select e.committed_at from {newest} e where e.seq = %(newest_seq)s), p.committed_at),
    events = p.events + %(events)s,
    updated_at = clock_timestamp()
from (select pg_sequence_last_value({sequence}::regclass) as seq) head
where p.source_id = %(source)s
