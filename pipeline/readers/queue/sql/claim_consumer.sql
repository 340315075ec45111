-- A records consumer, locked; no row while an administrative function has locked it: the shuffler never waits.
select c.id, c.name, c.tables, c.actions, c.group_by, c.collapse, p.folded_seq as applied_seq,
    exists (select from pipeline.consumer_touches t where t.consumer_id = c.id) as has_deferred
from pipeline.consumer_progress p join pipeline.consumers c on c.id = abs(p.consumer_id)
where p.consumer_id in (%(id)s::int, -%(id)s::int)
for no key update of p skip locked
