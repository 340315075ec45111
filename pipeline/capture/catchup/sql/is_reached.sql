-- Read whether everything before this worker's part is staged, and worker 0's position.
select exists (
        select from pipeline.reached_workers r where r.source_id = p.source_id and r.worker = %(worker)s
    ) as reached, p.position
from pipeline.replication_progress p
where p.source_id = %(source)s and p.worker = 0
