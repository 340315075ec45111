-- Read the watermark, the last transaction that is staged completely, and the segments with rows to move, in the order in
-- which they must be drained: one transaction may fill several. One statement reads all of it at one moment. It also reads
-- the places of the next range of a table and of the next table to adopt. It leaves out workers before whose part
-- something is missing. `generation` changes with each new worker, and when another worker's segments
-- become the next to be drained. Makes the watermark at first use.
with made as (
    insert into pipeline.shuffle_progress (source_id, epoch)
    select source_id, epoch from pipeline.replication_progress where source_id = %(source)s and worker = 0
    on conflict do nothing
    returning epoch, commit_lsn
), watermark as (
    select epoch, commit_lsn from pipeline.shuffle_progress where source_id = %(source)s
    union all
    select epoch, commit_lsn from made
), reached as materialized (
    select worker, commit_lsn, generation from pipeline.reached_workers where source_id = %(source)s
)
select w.epoch, w.commit_lsn as watermark, p.complete, p.generation,
    (select min(r.commit_lsn) from pipeline.snapshot_ranges r where r.source_id = %(source)s and r.epoch = w.epoch
        and r.state = 'placed' and r.commit_lsn > w.commit_lsn) as next_range,
    (select min(greatest(a.first_lsn, w.commit_lsn + 1)) from pipeline.adopted_tables a
        where a.source_id = %(source)s and a.state = 'waiting') as next_adopted,
    s.id, s.state = 'full', s.first_lsn, s.last_lsn, s.first_ordinal, s.row_count
from watermark w
join (
    select max(commit_lsn) as complete, string_agg(worker || ' ' || generation, ',' order by worker) as generation
    from reached
) p on p.complete is not null
left join pipeline.segments s on s.source_id = %(source)s and s.state in ('filling', 'full') and s.first_lsn is not null
    and s.worker in (select worker from reached)
order by s.first_lsn, s.first_ordinal
