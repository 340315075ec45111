-- Letters of a source that were retried, by their events, and whether one of them is at a seq.
select count(*) as retried, coalesce(bool_or(seq = %(head)s), false) as newest
from {events}
where source_database_id = %(source)s and seq > %(after)s and seq <= %(head)s and metadata ? 'retried'
