-- Up to where events were moved, and up to where transactions are staged whole. Makes the watermark at first use.
with made as (
    insert into pipeline.shuffle_progress (source_id, epoch)
    select source_id, epoch from pipeline.replication_progress where source_id = %(source)s and worker = 0
    on conflict do nothing
    returning source_id, epoch, commit_lsn
), watermark as (
    select source_id, epoch, commit_lsn from pipeline.shuffle_progress where source_id = %(source)s
    union all
    select source_id, epoch, commit_lsn from made
)
select w.epoch, w.commit_lsn as watermark, p.commit_lsn as complete, p.generation
from watermark w join pipeline.replication_progress p using (source_id)
where p.worker = 0
