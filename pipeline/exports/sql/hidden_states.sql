-- Tables without a current state in the lake in a directory, or in one within it, for the reason that was found last.
select l.events_table, s.dataset as table_name, s.reason
from pipeline.lakes l
join pipeline.export_tables t on t.lake_id = l.id and t.dataset is null
cross join lateral (
    select s.dataset, s.state, s.reason from pipeline.export_states s
    where s.table_id = t.id order by s.id desc limit 1
) s
where (l.directory = %(directory)s or starts_with(l.directory, %(directory)s || '/')) and l.released_at is null
    and s.state = 'failed' and not exists (
        select from pipeline.export_tables other where other.lake_id = l.id and other.dataset = s.dataset
    )
order by l.created_at, s.dataset
