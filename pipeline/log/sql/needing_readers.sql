-- List readers that still need events of this table, the one that needs most first.
select kind, name, needs_after, remedy
from pipeline.readers
where coalesce(events_table, %(table)s::text) = %(table)s and needs_after is not null
order by needs_after, kind, name
