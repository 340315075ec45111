-- List segments with rows to move, of workers whose part is reached, in the order in which they must be drained: one
-- transaction may fill several.
select id, state = 'full' as full, first_lsn, last_lsn, first_ordinal, row_count
from pipeline.segments
where source_id = %(source)s and state in ('filling', 'full') and first_lsn is not null
    and worker in (select worker from pipeline.reached_workers where source_id = %(source)s)
order by first_lsn, first_ordinal
