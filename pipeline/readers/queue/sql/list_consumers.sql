-- Records consumers, those that are furthest behind first.
select c.id, c.name, c.tables, c.actions, c.group_by, p.folded_seq,
    exists (select from pipeline.consumer_touches t where t.consumer_id = c.id) as touched
from pipeline.consumer_progress p join pipeline.consumers c on c.id = p.consumer_id
order by p.folded_seq, c.id
