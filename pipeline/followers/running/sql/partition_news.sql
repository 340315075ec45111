-- Return another row after each change of a partition or of inheritance that the server finds, after a partition is
-- settled, and after a backfill that should read a partition fails or is cancelled.
select (select c.id from pipeline.partition_changes c order by c.id desc limit 1) as newest, count(*) as unsettled,
    count(*) filter (where b.state in ('failed', 'cancelled')) as given_up,
    (select h.id from pipeline.inheritance h order by h.id desc limit 1) as inherits
from pipeline.partition_changes c
left join pipeline.backfills b on b.id = c.backfill_id
where c.settled_at is null
