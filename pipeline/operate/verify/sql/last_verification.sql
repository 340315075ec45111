-- The newest content verification.
select asked_by, started_at, finished_at, share, tables_compared, tables_refused, rows, differing, unknown,
    verified_through, array(select t ->> 'table' from jsonb_array_elements(tables) t where t ->> 'state' = 'differs') as differs
from pipeline.verifications where source_id = %(source)s order by id desc limit 1
