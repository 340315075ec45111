-- Count the events that retries have added; the watermark stays.
with counted as (
    update pipeline.events_tables t
    set last_seq = m.last_seq, events = t.events + m.events, updated_at = clock_timestamp()
    from unnest(%(names)s::text[], %(seqs)s::bigint[], %(added)s::bigint[]) as m (name, last_seq, events)
    where t.source_id = %(source)s and t.name = m.name
)
update pipeline.shuffle_progress
set last_seq = coalesce(%(newest)s::bigint, last_seq),
    events = events + (select coalesce(sum(a), 0) from unnest(%(added)s::bigint[]) a),
    updated_at = clock_timestamp()
where source_id = %(source)s
