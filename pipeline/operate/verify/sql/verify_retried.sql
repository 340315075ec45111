-- The number of events of a source that are retried dead letters, and true if one of them is at a seq.
select count(*) as retried, coalesce(bool_or(seq = %(head)s), false) as newest
from {events}
where source_database_id = %(source)s and seq > %(after)s and seq <= %(head)s and metadata ? 'retried'
