-- The routes in force and earlier routes, the newest first.
select id, epoch, after_lsn, events_table, routes, first_seqs, since
from pipeline.routes
where source_id = %(source)s or %(source)s::uuid is null
order by id desc
