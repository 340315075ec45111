-- Return the LSN of the source before which everything is in the events tables; null while staged rows wait to be moved.
select case when coalesce(max(s.commit_lsn), 0) >= max(p.commit_lsn) then max(p.position) end as moved
from pipeline.reached_workers p
left join pipeline.shuffle_progress s using (source_id)
where p.source_id = %(source)s
