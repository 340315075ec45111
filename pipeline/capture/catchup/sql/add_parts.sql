-- Store a plan and the progress of its workers. No rows if another worker 0 has taken over, or if a plan exists
-- already. Generations continue from those of all earlier parts: a worker that was frozen since then can write
-- nothing.
with anchor as (
    select source_id, epoch, generation from pipeline.replication_progress
    where source_id = %(source)s and worker = 0 and generation = %(generation)s
        and not exists (select from pipeline.catchup_parts where source_id = %(source)s)
    for update
), parts as (
    insert into pipeline.catchup_parts (source_id, worker, epoch, from_lsn, until_lsn, first_seq)
    select a.source_id, t.worker, a.epoch, t.from_lsn, t.until_lsn, t.first_seq
    from anchor a
    cross join unnest(%(workers)s::integer[], %(from)s::bigint[], %(until)s::bigint[], %(first_seqs)s::bigint[])
        as t (worker, from_lsn, until_lsn, first_seq)
    returning source_id, worker, epoch, from_lsn
)
insert into pipeline.replication_progress (source_id, worker, epoch, generation, position)
select p.source_id, p.worker, p.epoch, a.generation, p.from_lsn from parts p join anchor a using (source_id)
