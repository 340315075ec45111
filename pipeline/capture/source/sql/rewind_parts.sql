-- Discard what parts of a backlog have staged beyond an LSN at which the source's history forked: they begin again.
with beyond as (
    select c.source_id, c.worker, c.from_lsn
    from pipeline.catchup_parts c join pipeline.replication_progress p using (source_id, worker)
    where c.source_id = %(source)s and p.position > greatest(%(fork)s, c.from_lsn)
), segments as (
    update pipeline.segments s set state = 'drained' from beyond b
    where s.source_id = b.source_id and s.worker = b.worker and s.state in ('filling', 'full')
)
update pipeline.replication_progress p
set position = b.from_lsn, commit_lsn = 0, committed_at = null, generation = p.generation + 1, changes = 0,
    transactions = 0, open_commit_lsn = null, open_changes = 0, updated_at = clock_timestamp()
from beyond b
where p.source_id = b.source_id and p.worker = b.worker
returning p.worker
