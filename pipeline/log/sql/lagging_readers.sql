-- List the readers of an events table that lack events, each with the first event that it lacks.
with head as (
    select coalesce((select seq from {events} order by seq desc limit 1), 0) as seq
), reader as (
    -- If a folder was made a lake twice, the newer lake counts.
    select distinct on (kind, name) kind, name, position, active, paused, remedy
    from pipeline.readers
    where coalesce(events_table, %(table)s::text) = %(table)s
    order by kind, name, position desc
)
select r.kind, r.name, r.active, r.paused, r.remedy, pipeline.seqs_between(%(table)s, r.position, h.seq) as seqs, first.commit_lsn, first.committed_at,
    first.source_epoch as epoch
from reader r
cross join head h
cross join lateral (
    select e.commit_lsn, e.committed_at, e.source_epoch from {events} e
    where e.seq > r.position order by e.seq limit 1
) first
where r.position < h.seq
