-- Give a part's staged rows to worker 0. Its generation becomes higher than those of both workers: no worker ever
-- gets the same generation twice. No row if another worker has taken over one of the two: roll back.
with part as (
    delete from pipeline.catchup_parts where source_id = %(source)s and worker = %(worker)s
    returning worker
), progress as (
    delete from pipeline.replication_progress
    where source_id = %(source)s and worker = %(worker)s and generation = %(generation)s
    returning source_id, generation, position, commit_lsn, committed_at, changes, transactions
), segments as (
    update pipeline.segments set worker = 0 where source_id = %(source)s and worker = %(worker)s
)
update pipeline.replication_progress p
set generation = greatest(p.generation, g.generation) + 1,
    position = greatest(p.position, g.position),
    commit_lsn = greatest(p.commit_lsn, g.commit_lsn),
    committed_at = case when g.commit_lsn > p.commit_lsn then g.committed_at else p.committed_at end,
    changes = p.changes + g.changes,
    transactions = p.transactions + g.transactions,
    updated_at = clock_timestamp()
from progress g, part
where p.source_id = g.source_id and p.worker = 0 and p.generation = %(own_generation)s
