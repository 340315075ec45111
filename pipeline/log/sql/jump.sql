-- Let the events table skip all seqs that a lost log may have handed out: up to the source's clock, or if the table is above
-- that, by the time since its newest event, which another restore of the same dump would see, too.
with newest as materialized (
    select greatest((select max(e.seq) from {events} e),
        (select max(t.last_seq) from pipeline.events_tables t where t.name = %(name)s), 0) as seq,
        (select e.inserted_at from {events} e order by e.seq desc limit 1) as inserted_at
), jump as materialized (
    select n.seq as before, greatest(
        coalesce(pg_sequence_last_value(%(sequence)s::regclass), 0) + 1, n.seq + 1, %(clock)s::bigint,
        case when n.seq > %(clock)s::bigint
            then n.seq + (extract(epoch from clock_timestamp() - n.inserted_at) * 1000000)::bigint end) as after
    from newest n
), recorded as (
    insert into pipeline.seq_jumps (events_table, before, after, reason)
    select %(name)s, j.before, j.after, %(reason)s from jump j
)
select j.before, j.after, setval(%(sequence)s::regclass, j.after - 1) from jump j
