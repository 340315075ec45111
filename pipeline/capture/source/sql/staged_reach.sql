-- Read how far a source is staged: by worker 0 and by parts of which the log has something, then by all workers.
select max(p.position) filter (
        where p.worker = 0 or c.from_lsn <= s.commit_lsn or exists (
            select from pipeline.adopted_tables a where a.source_id = p.source_id and a.last_lsn >= c.from_lsn
        )
    ) as kept, max(p.position) as furthest
from pipeline.replication_progress p
left join pipeline.catchup_parts c using (source_id, worker)
left join pipeline.shuffle_progress s using (source_id)
where p.source_id = %(source)s
having count(*) > 0
