-- Who keeps a position that is a seq of the default events table, this one.
select 'consumer' as kind, name from pipeline.consumers
union all
select 'lake', directory from pipeline.lakes where events_table = %(table)s and released_at is null
order by 1, 2
