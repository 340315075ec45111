-- Read the state of the partition that is being dropped: attached, pending between the halves of its detach, or detached.
select n.nspname as schema, c.relname as name,
    case when i.inhparent is null then 'detached' when i.inhdetachpending then 'pending' else 'attached' end as state,
    greatest(extract(epoch from clock_timestamp() - r.dropping_since), 0)::float8 as seconds
from pipeline.retention r
join pg_class c on c.oid = r.dropping
join pg_namespace n on n.oid = c.relnamespace and n.nspname || '.' || c.relname = r.dropping_name
left join pg_inherits i on i.inhrelid = c.oid
where r.events_table = %(table)s
