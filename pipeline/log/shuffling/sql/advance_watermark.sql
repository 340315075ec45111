-- Move the watermark, the sequences and the counts of the events tables in the transaction that adds the rows.
with written as materialized (
    select * from unnest(%(names)s::text[], %(sequences)s::text[], %(seqs)s::bigint[], %(added)s::bigint[])
        as w (name, sequence, seq, added)
), counted as (
    update pipeline.events_tables t
    set last_seq = w.seq, events = t.events + w.added, updated_at = clock_timestamp()
    from written w
    where t.source_id = %(source)s and t.name = w.name
), moved as (
    update pipeline.shuffle_progress p
    set commit_lsn = %(commit_lsn)s,
        last_seq = coalesce(%(last_seq)s::bigint, greatest(p.last_seq, (
            select max(t.last_seq) from pipeline.events_tables t where t.name = %(default)s))),
        committed_at = coalesce((select e.committed_at from {newest} e where e.seq = %(newest_seq)s::bigint), p.committed_at),
        events = p.events + %(events)s,
        updated_at = clock_timestamp()
    where p.source_id = %(source)s
)
select setval(w.sequence::regclass, w.seq) from written w
