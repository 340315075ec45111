-- The parts of a plan and how far each is staged, the anchor's first; no rows when there is no catch-up.
with planned as (
    select worker, from_lsn, until_lsn, first_seq from pipeline.catchup_parts where source_id = %(source)s
), anchor as (
    select min(from_lsn) as until_lsn from planned having min(from_lsn) is not null
)
select p.worker, coalesce(planned.from_lsn, least(p.position, anchor.until_lsn)) as from_lsn,
    case p.worker when 0 then anchor.until_lsn else planned.until_lsn end as until_lsn, p.position,
    p.commit_lsn, planned.first_seq
from anchor, pipeline.replication_progress p left join planned using (worker)
where p.source_id = %(source)s and (p.worker = 0 or planned.worker is not null)
order by 2, 1
