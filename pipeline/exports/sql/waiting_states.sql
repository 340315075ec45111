-- Current states of the lake in a directory that wait for more changes of their tables to come together.
select count(*) as waiting, min(t.waits_since) as waiting_since, min(state.seq) as waiting_seq
from pipeline.export_tables t
left join lateral (
    select s.seq from pipeline.export_states s
    where s.table_id = t.id and s.state = 'committed' order by s.seq desc limit 1
) state on true
where t.waits_since is not null and t.dataset is not null and t.lake_id = (
    select l.id from pipeline.lakes l where l.directory = %(directory)s order by l.created_at desc limit 1
)
