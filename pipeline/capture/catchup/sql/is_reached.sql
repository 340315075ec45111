-- Whether everything before this worker's part is staged, and up to where worker 0 has staged.
select exists (
        select from pipeline.reached_workers r where r.source_id = p.source_id and r.worker = %(worker)s
    ) as reached, p.position
from pipeline.replication_progress p
where p.source_id = %(source)s and p.worker = 0
