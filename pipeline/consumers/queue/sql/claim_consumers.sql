-- Lock records consumers and return them, without those that another session has locked: the shuffler never waits.
select c.id, c.name, c.tables, c.actions, c.group_by, c.collapse, c.events_table, p.folded_seq as applied_seq,
    exists (select from pipeline.consumer_touches t where t.consumer_id = c.id) as has_deferred
from pipeline.consumers c join pipeline.consumer_progress p on p.consumer_id = pipeline.progress_id(c)
where c.id = any (%(ids)s::int[])
for no key update of p skip locked
