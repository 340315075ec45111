-- The events of one row before a seq, the newest first, as JSON: `rows` of them, or until they take `bytes`. The row is
-- found by each oid that its table's name had.
with tables as materialized (
    select distinct source_id, table_oid from pipeline.relations
    where table_schema || '.' || table_name = %(table)s
), page as materialized (
    select e.seq, row_to_json(e)::text as event
    from tables t
    cross join lateral (
        select * from {events} h
        where h.source_database_id = t.source_id and h.source_table_oid = t.table_oid and h.record_pk = %(key)s
            and h.seq < %(before)s::bigint
            and (cardinality(%(actions)s::text[]) = 0 or h.action = any (%(actions)s::text[]))
        order by h.seq desc limit %(rows)s::int
    ) e
    order by e.seq desc limit %(rows)s::int
), sized as (
    select count(*) over () as found,
        coalesce(sum(octet_length(event)) over (order by seq desc rows between unbounded preceding and 1 preceding), 0)
            as before, p.*
    from page p
)
select (select coalesce(max(seq), 0) from {events}) as head, 0::bigint as searched, false as has_older,
    s.found, s.seq, s.event
from (select) one left join sized s on s.before < %(bytes)s::bigint
order by s.seq desc
