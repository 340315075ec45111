-- Count the events of these tables and their partitions in the log after a seq; partitions have their root's name.
select count(*) as events, min(e.seq) as first_seq, max(e.seq) as last_seq,
    coalesce(array_agg(distinct e.source_table_schema || '.' || e.source_table_name), '{}') as tables
from pipeline.events e
where e.seq > %(after)s and e.source_database_id = %(source)s and e.source_table_oid in (
    select r.relation_oid from pipeline.relations r where r.source_id = %(source)s and r.table_oid = any(%(oids)s)
    union all
    select unnest(%(oids)s::bigint[])
)
