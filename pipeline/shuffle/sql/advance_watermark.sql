-- The watermark moves with the rows, in their transaction.
update pipeline.shuffle_progress p
set commit_lsn = %(commit_lsn)s,
    last_seq = head.seq,
    committed_at = coalesce((select e.committed_at from {events} e where e.seq = head.seq), p.committed_at),
    events = p.events + %(events)s,
    updated_at = clock_timestamp()
from (select pg_sequence_last_value({sequence}::regclass) as seq) head
where p.source_id = %(source)s
returning p.last_seq
