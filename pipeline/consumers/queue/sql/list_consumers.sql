-- Records consumers whose events tables exist, the one that lags most first.
select c.id, c.name, c.tables, c.actions, c.group_by, c.collapse, c.events_table, p.folded_seq as applied_seq,
    exists (select from pipeline.consumer_touches t where t.consumer_id = c.id) as has_deferred
from pipeline.consumers c join pipeline.consumer_progress p on p.consumer_id = pipeline.progress_id(c)
where c.events_table is null or to_regclass(pipeline.events_relation(c.events_table)) is not null
order by p.folded_seq, c.id
